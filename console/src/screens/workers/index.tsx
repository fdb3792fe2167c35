import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { type Answer, api } from "@/api/client";
import { Go } from "@/app/Go";
import type { Routes } from "@/app/screens";
import { to } from "@/app/url";
import { useLive } from "@/live/live";
import { Status, Tag } from "@/parts/Badge";
import { Card, Figure, Head } from "@/parts/Card";
import { Facts } from "@/parts/Facts";
import { Empty, Loaded } from "@/parts/States";
import { type Column, Table } from "@/parts/Table";
import { Text } from "@/parts/Text";
import { plural, short } from "@/parts/text";
import { Time } from "@/parts/Time";
import type { Tone } from "@/parts/tones";

type Found = Answer<"/api/v1/workers">;
type Worker = Found["workers"][number];
type Lease = Found["leases"][number];
type Item = Answer<"/api/v1/workers/{id}">["items"][number];

const TONES: Readonly<Record<string, Tone>> = { busy: "busy", idle: "good", late: "warn", gone: "bad" };
const MEANS: Readonly<Record<string, string>> = {
  busy: "It has work in hand.",
  idle: "It waits for work.",
  late: "It has given no sign of life for too long. Whoever lives takes its work soon.",
  gone: "It died with work in hand, which will be taken from it.",
};

const COLUMNS: readonly Column<Worker>[] = [
  { title: "Worker", cell: (one) => <Text value={place(one)} most={60} />, width: "24%" },
  { title: "State", cell: (one) => <Status state={one.state} tone={TONES[one.state] ?? "quiet"} title={MEANS[one.state] ?? ""} />, width: "90px" },
  { title: "In hand", cell: (one) => short(one.in_hand), width: "80px", right: true },
  { title: "Queues", cell: (one) => <Text value={one.queues.join(", ")} most={80} />, optional: true },
  { title: "Tasks", cell: (one) => (one.tasks.length ? plural(one.tasks.length, "task") : null), width: "90px", right: true, optional: true },
  { title: "Code", cell: (one) => (one.versions ? <Text value={one.versions.join(", ")} most={30} /> : <span className="muted">all</span>), width: "90px", optional: true },
  { title: "Since", cell: (one) => <Time at={one.since} />, width: "100px", right: true, optional: true },
  { title: "Seen", cell: (one) => <Time at={one.seen_at} />, width: "100px", right: true },
];

const LEASES: readonly Column<Lease>[] = [
  { title: "What", cell: (one) => <Text value={one.name} most={80} /> },
  { title: "Held until", cell: (one) => <Time at={one.until} />, width: "120px", right: true },
  { title: "Times", cell: (one) => short(one.term), width: "80px", right: true, optional: true },
];

function List() {
  const found = useQuery({ queryKey: ["workers", "list"], queryFn: ({ signal }) => api.get("/api/v1/workers", { signal }) });
  const stranded = useQuery({ queryKey: ["workers", "stranded"], queryFn: ({ signal }) => api.get("/api/v1/workflows/stranded", { query: { limit: 200 }, signal }) });
  useLive([], [["workers"]]);
  return (
    <>
      <Head title="Workers">Who carries workflows on, where, and with what in hand.</Head>
      <Loaded query={found}>
        {({ workers, leases }) => (
          <div className="stack">
            <div className="figures">
              <Figure label="Alive" value={short(workers.filter((one) => one.state === "busy" || one.state === "idle").length)} />
              <Figure label="Late or gone" value={short(workers.filter((one) => one.state === "late" || one.state === "gone").length)} {...(workers.some((one) => one.state === "gone") ? { tone: "bad" as const } : {})} />
              <Figure label="In hand" value={short(workers.reduce((sum, one) => sum + one.in_hand, 0))} />
              <Figure
                label="Stranded"
                value={stranded.data ? short(stranded.data.length) + (stranded.data.length === 200 ? "+" : "") : "–"}
                {...(stranded.data?.length ? { tone: "warn" as const } : {})}
                note={<Go to={to("workflows", null, { tab: "stranded" })}>Work that nobody can take</Go>}
              />
            </div>
            <Card flush>
              <Table
                label="Workers"
                columns={COLUMNS}
                rows={workers}
                id={(one) => one.id}
                href={(one) => to("workers", one.id)}
                empty={
                  <Empty title="No worker is there" icon="people">
                    Nobody carries workflows on now. Start one with <code>holdfast worker --app shop:hold</code>, or <code>hold.workflows.worker().start()</code> in your program.
                  </Empty>
                }
              />
            </Card>
            <Card title="Looked after by one at a time" flush>
              <Table
                label="Leases"
                columns={LEASES}
                rows={leases}
                id={(one) => one.name}
                empty={<Empty title="Nothing is held">Maintenance of letters and their recovery hold a lease while they work.</Empty>}
              />
            </Card>
          </div>
        )}
      </Loaded>
    </>
  );
}

const ITEMS: readonly Column<Item>[] = [
  { title: "Workflow", cell: (one) => <Text value={one.workflow || one.workflow_id} most={60} />, width: "30%" },
  { title: "Stage", cell: (one) => <Text value={one.stage} most={60} /> },
  { title: "Task", cell: (one) => <Text value={one.task || one.kind} most={60} />, optional: true },
  { title: "Attempt", cell: (one) => one.attempt, width: "80px", right: true },
  { title: "Crashes", cell: (one) => (one.crashes ? <Tag tone="warn">{one.crashes}</Tag> : 0), width: "80px", right: true, optional: true },
];

function One() {
  const { id } = useParams({ strict: false }) as { id: string };
  const worker = useQuery({ queryKey: ["workers", id], queryFn: ({ signal }) => api.get("/api/v1/workers/{id}", { path: { id }, signal }) });
  useLive(["workflows"], [["workers", id]]);
  return (
    <Loaded query={worker}>
      {(found) => (
        <>
          <Head title={<Text value={place(found)} most={100} />} back={<Go to={to("workers")}>Workers</Go>} badge={<Status state={found.state} tone={TONES[found.state] ?? "quiet"} />}>
            {MEANS[found.state]}
          </Head>
          <div className="stack">
            <Card>
              <Facts
                wide
                facts={[
                  ["Id", <Text value={found.id} mono />],
                  ["Host", found.host],
                  ["Process", found.pid],
                  ["Since", found.since && <Time at={found.since} absolute />],
                  ["Last sign of life", found.seen_at && <Time at={found.seen_at} />],
                  ["Counts as dead", found.counts_until && <Time at={found.counts_until} />],
                  ["Queues", found.queues.join(", ")],
                  ["Code", found.versions ? found.versions.join(", ") : found.tasks.length ? "all versions" : null],
                ]}
              />
            </Card>
            <Card title={`In hand (${short(found.in_hand)})`} flush>
              <Table
                label="In hand"
                columns={ITEMS}
                rows={found.items}
                id={(one) => `${one.workflow_id} ${one.stage} ${one.kind} ${one.task}`}
                href={(one) => to("workflows", one.workflow_id, { stage: one.stage })}
                empty={<Empty title="Nothing in hand">It takes what is due in its queues.</Empty>}
              />
            </Card>
            {found.tasks.length > 0 && (
              <Card title={`Tasks that it can run (${short(found.tasks.length)})`}>
                <div className="row">
                  {found.tasks.slice(0, 300).map((task) => (
                    <Tag key={task}>
                      <Text value={task} most={60} />
                    </Tag>
                  ))}
                  {found.tasks.length > 300 && <span className="muted">and {plural(found.tasks.length - 300, "other")}</span>}
                </div>
              </Card>
            )}
          </div>
        </>
      )}
    </Loaded>
  );
}

function place(worker: Worker): string {
  if (!worker.host && worker.pid === null) return worker.id;
  return `${worker.host || "?"} · ${worker.pid ?? "?"}`;
}

export const routes: Routes = { "/": List, "/$id": One };
