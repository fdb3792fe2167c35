import "@/screens/guards/guards.css";
import { useQuery } from "@tanstack/react-query";
import { type Answer, api } from "@/api/client";
import { to, useUrl } from "@/app/url";
import { useLive } from "@/live/live";
import { Pill, Status, Tag } from "@/parts/Badge";
import { Card, Head } from "@/parts/Card";
import { Filters } from "@/parts/Filters";
import { Pager } from "@/parts/Pager";
import { Spark } from "@/parts/Spark";
import { Empty, Loaded } from "@/parts/States";
import { type Column, Table } from "@/parts/Table";
import { Text } from "@/parts/Text";
import { duration, percent, plural, short } from "@/parts/text";
import { callsOf, failureShare, worstCase } from "@/screens/guards/figures";

type Guard = Answer<"/api/v1/guards">["items"][number];

const COLUMNS: readonly Column<Guard>[] = [
  { title: "Guard", cell: (guard) => <Text value={guard.name} most={80} />, width: "22%" },
  { title: "Breaker", cell: (guard) => <Standing guard={guard} />, width: "130px" },
  { title: "Last 30 min", cell: (guard) => <Calls guard={guard} />, width: "120px", optional: true },
  { title: "Calls", cell: (guard) => short(callsOf(guard.outcomes)), width: "80px", right: true },
  { title: "Failed", cell: (guard) => <Failed guard={guard} />, width: "80px", right: true },
  { title: "p90", cell: (guard) => (guard.latency ? duration(guard.latency.p90) : "–"), width: "80px", right: true, optional: true },
  { title: "Worst case", cell: (guard) => worstCase(guard.max_calls, guard.max_seconds), optional: true },
  { title: "Letters", cell: (guard) => <Letters guard={guard} />, width: "80px", right: true, optional: true },
  { title: "Warnings", cell: (guard) => (guard.warnings.length ? <Pill count={guard.warnings.length} tone="warn" /> : "–"), width: "90px", right: true, optional: true },
];

/** The guards that this process has made. */
export function List() {
  const url = useUrl();
  const query = { search: url.get("search"), after: url.get("after"), limit: 100 };
  const guards = useQuery({
    queryKey: ["guards", "list", query],
    queryFn: ({ signal }) => api.get("/api/v1/guards", { query, signal }),
    placeholderData: (before) => before,
    refetchInterval: 5000,
  });
  useLive(["breakers", "event"], [["guards"]]);
  return (
    <>
      <Head title="Guards">What stands around the calls of this process: what they came to, and whether they are let through.</Head>
      <div className="stack">
        <Filters fields={[{ name: "search", label: "Name", free: true, example: "payments" }]} />
        <Card flush>
          <Loaded query={guards}>
            {(page) => (
              <Table
                label="Guards"
                columns={COLUMNS}
                rows={page.items}
                id={(guard) => guard.name}
                href={(guard) => to("guards", guard.name)}
                stale={guards.isPlaceholderData}
                empty={query.search ? <Empty title="No such guard" icon="search">No guard of this process has that in its name.</Empty> : <Nothing hasProgram={page.has_program} />}
              />
            )}
          </Loaded>
        </Card>
        <Pager next={guards.data?.next} shown={guards.data?.items.length} />
      </div>
    </>
  );
}

function Nothing({ hasProgram }: { hasProgram: boolean }) {
  return (
    <Empty title="No guards in this process" icon="shield">
      {hasProgram ? (
        <>
          They appear when the program makes one: <code>hold.guard("payments", Retry(), Breaker())</code>
        </>
      ) : (
        <>
          This server looks at the store only. To see a program's guards, serve it with them: <code>holdfast serve --app shop:hold</code>. Breakers that other processes share are under Breakers.
        </>
      )}
    </Empty>
  );
}

function Standing({ guard }: { guard: Guard }) {
  if (guard.circuit && guard.circuit.state !== "closed") return <Status state={guard.circuit.control === "isolated" ? "forced_open" : guard.circuit.state} />;
  if (guard.refusing.length) return <Tag tone="bad">refuses calls</Tag>;
  return guard.circuit ? <Status state={guard.circuit.state} /> : <span className="muted">none</span>;
}

function Calls({ guard }: { guard: Guard }) {
  const { calls, failures, refused } = guard.minutes;
  const sum = calls.reduce((all, one) => all + one, 0);
  const isBad = [...failures, ...refused].some((one) => one > 0);
  return <Spark values={calls} label={`${plural(sum, "call")} in the last 30 minutes`} tone={isBad ? "warn" : "busy"} />;
}

function Failed({ guard }: { guard: Guard }) {
  const share = failureShare(guard.outcomes);
  return share === undefined ? <>–</> : <span className={share > 0 ? "guards-failed" : undefined}>{percent(share)}</span>;
}

function Letters({ guard }: { guard: Guard }) {
  if (!guard.keeps_letters || guard.letters === null) return <>–</>;
  return <Pill count={guard.letters} tone={guard.letters ? "warn" : "quiet"} />;
}
