import { useQuery } from "@tanstack/react-query";
import { type Answer, api } from "@/api/client";
import { to } from "@/app/url";
import { useLive } from "@/live/live";
import { Pill, Status, Tag } from "@/parts/Badge";
import { Card, Head } from "@/parts/Card";
import { Meter } from "@/parts/Spark";
import { Empty, Loaded } from "@/parts/States";
import { type Column, Table } from "@/parts/Table";
import { Text } from "@/parts/Text";

type Pool = Answer<"/api/v1/pools">["items"][number];

const COLUMNS: readonly Column<Pool>[] = [
  { title: "Pool", cell: (pool) => <Text value={pool.name} most={80} />, width: "30%" },
  { title: "State", cell: (pool) => <Status state={stateOf(pool)} />, width: "120px" },
  { title: "Available", cell: (pool) => <Available pool={pool} />, width: "170px" },
  { title: "In flight", cell: (pool) => pool.in_flight, width: "80px", right: true },
  { title: "Drained", cell: (pool) => <Drained pool={pool} />, width: "80px", right: true, optional: true },
  { title: "Kind", cell: (pool) => <Tag>{pool.is_rotator ? "rotator" : "pool"}</Tag>, width: "90px", optional: true },
  { title: "Chosen by", cell: (pool) => pool.choose, width: "100px", optional: true },
  { title: "Opens by", cell: (pool) => <Text value={pool.opens_by} most={120} />, optional: true },
];

/** The endpoint pools of this process. */
export function List() {
  const pools = useQuery({ queryKey: ["pools", "list"], queryFn: ({ signal }) => api.get("/api/v1/pools", { signal }), refetchInterval: 5000 });
  useLive(["event"], [["pools"]]);
  return (
    <>
      <Head title="Pools">More than one place to call: who of them answers, and who is left out.</Head>
      <Card flush>
        <Loaded query={pools}>
          {(found) => (
            <Table label="Pools" columns={COLUMNS} rows={found.items} id={(pool) => pool.name} href={(pool) => to("pools", pool.name)} empty={<Nothing hasProgram={found.has_program} />} />
          )}
        </Loaded>
      </Card>
    </>
  );
}

export function stateOf(pool: Pool): string {
  if (pool.available === pool.members.length && pool.available > 0) return "healthy";
  return pool.available > 0 ? "degraded" : "down";
}

function Available({ pool }: { pool: Pool }) {
  return (
    <span className="row">
      <span className="num">
        {pool.available} of {pool.members.length}
      </span>
      <Meter value={pool.available} most={pool.members.length} label="Endpoints that may be called" tone={pool.available === pool.members.length ? "good" : pool.available ? "warn" : "bad"} />
    </span>
  );
}

function Drained({ pool }: { pool: Pool }) {
  const drained = pool.members.filter((member) => member.control === "isolated").length;
  return drained ? <Pill count={drained} tone="warn" /> : <>–</>;
}

function Nothing({ hasProgram }: { hasProgram: boolean }) {
  return (
    <Empty title="No pools in this process" icon="fork">
      {hasProgram ? (
        <>
          They appear when the program names one: <code>hold.add_pool("cdn", EndpointPool(["https://a", "https://b"]))</code>
        </>
      ) : (
        <>
          Pools live in the program's process. Serve it with them: <code>holdfast serve --app shop:hold</code>
        </>
      )}
    </Empty>
  );
}
