import "@/screens/breakers/breakers.css";
import { useQuery } from "@tanstack/react-query";
import { type Answer, api } from "@/api/client";
import { to, useUrl } from "@/app/url";
import { useLive } from "@/live/live";
import { Status, Tag } from "@/parts/Badge";
import { Card, Head } from "@/parts/Card";
import { counted, Filters } from "@/parts/Filters";
import { Pager } from "@/parts/Pager";
import { Empty, Loaded } from "@/parts/States";
import { type Column, Table } from "@/parts/Table";
import { Text } from "@/parts/Text";
import { Time } from "@/parts/Time";
import { short } from "@/parts/text";
import { Sharing } from "@/screens/breakers/Sharing";

type Page = Answer<"/api/v1/breakers">;
type Breaker = Page["items"][number];

const COLUMNS: readonly Column<Breaker>[] = [
  { title: "Breaker", cell: (breaker) => <Text value={breaker.service_name} most={80} />, width: "26%" },
  { title: "State", cell: (breaker) => <State breaker={breaker} />, width: "170px" },
  { title: "Failures", cell: (breaker) => short(breaker.failure_count), width: "80px", right: true },
  { title: "Open since", cell: (breaker) => <Time at={breaker.opened_at} />, width: "110px" },
  { title: "Held until", cell: (breaker) => (breaker.pin_active ? <Time at={breaker.manual_override_expires_at} none="cleared" /> : "–"), width: "110px", optional: true },
  { title: "Reason", cell: (breaker) => <Text value={breaker.control_reason} most={120} />, optional: true },
  { title: "Guards here", cell: (breaker) => <Text value={breaker.guards.join(", ")} most={60} />, width: "14%", optional: true },
];

/** The breakers of the store, and those of this process that never moved. */
export function List() {
  const url = useUrl();
  const query = { state: url.get("state"), after: url.get("after"), limit: 100 };
  const breakers = useQuery({
    queryKey: ["breakers", "list", query],
    queryFn: ({ signal }) => api.get("/api/v1/breakers", { query, signal }),
    placeholderData: (before) => before,
    refetchInterval: 10_000,
  });
  useLive(["breakers", "event"], [["breakers"]]);
  return (
    <>
      <Head title="Breakers">One breaker for all processes on the store: what one of them learns, the others heed.</Head>
      <div className="stack">
        {breakers.data && <Sharing sharing={breakers.data.sharing} />}
        <Filters fields={[{ name: "state", label: "State", options: counted(breakers.data?.by_state), free: true, example: "open" }]} />
        <Card flush>
          <Loaded query={breakers}>
            {(page) => (
              <Table
                label="Breakers"
                columns={COLUMNS}
                rows={rowsOf(page, query.state !== undefined)}
                id={(breaker) => breaker.service_name}
                href={(breaker) => to("breakers", breaker.service_name)}
                stale={breakers.isPlaceholderData}
                empty={<Nothing state={query.state} />}
              />
            )}
          </Loaded>
        </Card>
        <Pager next={breakers.data?.next} shown={breakers.data?.items.length} />
      </div>
    </>
  );
}

/** Open ones first, as nobody should have to look for them; those of one state are in order already. */
function rowsOf(page: Page, isOrdered: boolean): readonly Breaker[] {
  const rows = [...page.items, ...page.unmoved];
  return isOrdered ? rows : rows.sort((a, b) => Number(a.state === "closed") - Number(b.state === "closed") || a.service_name.localeCompare(b.service_name));
}

function Nothing({ state }: { state: string | undefined }) {
  if (state) return <Empty title={`No breaker is ${state.replace("_", "-")}`}>That is a good sign, or nothing of the kind was ever called.</Empty>;
  return (
    <Empty title="No breakers" icon="shield">
      A breaker is stored once it has moved. They appear when a guard has one: <code>hold.guard("payments", Breaker())</code>
    </Empty>
  );
}

function State({ breaker }: { breaker: Breaker }) {
  return (
    <span className="breakers-state">
      <Status state={breaker.state} />
      {breaker.pin_active && <Tag tone="warn">held</Tag>}
      {!breaker.stored && <Tag>{breaker.state === "closed" ? "never moved" : "in this process only"}</Tag>}
    </span>
  );
}
