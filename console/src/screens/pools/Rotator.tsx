import { useQuery } from "@tanstack/react-query";
import { type Answer, api } from "@/api/client";
import { Card } from "@/parts/Card";
import { Chart } from "@/parts/Chart";
import { Facts } from "@/parts/Facts";
import { Empty, Loaded } from "@/parts/States";
import { type Column, Table } from "@/parts/Table";
import { Text } from "@/parts/Text";
import { duration, percent, short, whole } from "@/parts/text";
import { Policy } from "@/screens/pools/Policy";

type Stats = Answer<"/api/v1/metrics/retries/by-proxy">["proxies"][string];
type Row = Stats & { readonly id: string };

const COLUMNS: readonly Column<Row>[] = [
  { title: "Endpoint", cell: (row) => <Text value={row.id} most={80} /> },
  { title: "Attempts", cell: (row) => short(row.total_attempts), width: "90px", right: true },
  { title: "Succeeded", cell: (row) => (row.total_attempts ? percent(row.success_count / row.total_attempts, 0) : "–"), width: "90px", right: true },
  { title: "Latency", cell: (row) => (row.total_attempts ? duration(row.avg_latency) : "–"), width: "90px", right: true, optional: true },
  { title: "Breaker opened", cell: (row) => `${row.circuit_breaker_opens} ×`, width: "130px", right: true },
];

/** What a rotator adds to a pool: its retry policy, and what its attempts came to. */
export function Rotator({ name }: { name: string }) {
  return (
    <>
      <div className="columns">
        <Policy name={name} />
        <Attempts name={name} />
      </div>
      <ByEndpoint name={name} />
    </>
  );
}

function Attempts({ name }: { name: string }) {
  const query = { pool: name };
  const summary = useQuery({ queryKey: ["pools", "attempts", name], queryFn: ({ signal }) => api.get("/api/v1/metrics/retries", { query, signal }), refetchInterval: 10_000 });
  const hours = useQuery({ queryKey: ["pools", "hours", name], queryFn: ({ signal }) => api.get("/api/v1/metrics/retries/timeseries", { query, signal }), refetchInterval: 60_000 });
  return (
    <Card title="Attempts">
      <Loaded query={summary}>
        {(found) => (
          <Facts
            facts={[
              ["Requests", whole(found.total_requests)],
              ["Attempts", whole(found.total_retries)],
              ["Beyond the first", whole(found.extra_attempts)],
              ["Succeeded at", Object.entries(found.success_by_attempt).map(([attempt, number]) => `attempt ${Number(attempt) + 1}: ${whole(number)}`).join(", ")],
              ["Of the last", `${found.retention_hours} h`],
            ]}
          />
        )}
      </Loaded>
      <Loaded query={hours} lines={2}>
        {(found) =>
          found.data_points.length > 1 && (
            <Chart
              label="Attempts by the hour"
              times={found.data_points.map((point) => Date.parse(point.timestamp) / 1000)}
              series={[
                { label: "Attempts", values: found.data_points.map((point) => point.total_retries), tone: "accent", area: true },
                { label: "Failed", values: found.data_points.map((point) => Math.round(point.total_retries * (1 - point.success_rate))), tone: "bad" },
              ]}
              height={120}
            />
          )
        }
      </Loaded>
    </Card>
  );
}

function ByEndpoint({ name }: { name: string }) {
  const query = { pool: name };
  const proxies = useQuery({ queryKey: ["pools", "proxies", name], queryFn: ({ signal }) => api.get("/api/v1/metrics/retries/by-proxy", { query, signal }), refetchInterval: 10_000 });
  return (
    <Card title="Attempts by endpoint" flush>
      <Loaded query={proxies}>
        {(found) => (
          <Table
            label="Attempts by endpoint"
            columns={COLUMNS}
            rows={Object.entries(found.proxies).map(([id, stats]) => ({ id, ...stats }))}
            id={(row) => row.id}
            empty={<Empty title="No attempts yet">Nothing was sent through this rotator in the last {found.covered_hours} hours.</Empty>}
          />
        )}
      </Loaded>
    </Card>
  );
}
