import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { type Answer, api } from "@/api/client";
import { useMay } from "@/api/session";
import { Go, useGo } from "@/app/Go";
import { to, useUrl } from "@/app/url";
import { useLive } from "@/live/live";
import { useAsk } from "@/parts/Ask";
import { Pill, Status, Tag } from "@/parts/Badge";
import { Button } from "@/parts/Button";
import { Card, Head } from "@/parts/Card";
import { Filters } from "@/parts/Filters";
import { Pager } from "@/parts/Pager";
import { Empty, Loaded } from "@/parts/States";
import { type Column, Table } from "@/parts/Table";
import { Tabs } from "@/parts/Tabs";
import { Text } from "@/parts/Text";
import { Time, useNow } from "@/parts/Time";
import { useSay } from "@/parts/Toasts";
import { useAct } from "@/parts/useAct";
import { Dead } from "@/screens/workflows/Dead";
import { Prune } from "@/screens/workflows/Prune";
import { jsonOf, type Row, statusOptions, took } from "@/screens/workflows/states";

type Stranded = Answer<"/api/v1/workflows/stranded">[number];

export function List() {
  const facets = useQuery({ queryKey: ["workflows", "facets"], queryFn: ({ signal }) => api.get("/api/v1/workflows/facets", { signal }) });
  const stranded = useQuery({
    queryKey: ["workflows", "stranded"],
    queryFn: ({ signal }) => api.get("/api/v1/workflows/stranded", { query: { limit: 200 }, signal }),
  });
  useLive(["workflows"], [["workflows"]]);
  const stuck = stranded.data ?? [];
  return (
    <>
      <Head
        title="Workflows"
        actions={
          <>
            <Prune />
            <Start names={facets.data?.startable} />
          </>
        }
      >
        Graphs of tasks that whoever is alive carries on, step by step, after any crash.
      </Head>
      <Tabs
        label="Workflows"
        tabs={[
          { name: "runs", title: "Runs", body: () => <Runs counts={facets.data?.by_status} names={facets.data?.names} stuck={stuck} /> },
          {
            name: "stranded",
            title: (
              <>
                Stranded {stuck.length > 0 && <Pill count={stuck.length} tone="warn" />}
              </>
            ),
            body: () => (
              <Card flush>
                <Loaded query={stranded}>{(found) => <StrandedTable rows={found} />}</Loaded>
              </Card>
            ),
          },
          { name: "dead", title: "Dead items", body: () => <Dead /> },
        ]}
      />
    </>
  );
}

function Runs({ counts, names, stuck }: { counts: Readonly<Record<string, number>> | undefined; names: readonly string[] | undefined; stuck: readonly Stranded[] }) {
  const url = useUrl();
  const query = {
    status: url.all("status") as string[],
    name: url.get("name"),
    application: url.get("application"),
    parent: url.get("parent"),
    pipeline: url.get("pipeline"),
    since: moment(url.get("since")),
    until: moment(url.get("until")),
    after: url.get("after"),
    limit: 50,
  };
  const workflows = useQuery({
    queryKey: ["workflows", "list", query],
    queryFn: ({ signal }) => api.get("/api/v1/workflows", { query: { ...query, status: query.status.length ? query.status : null }, signal }),
    placeholderData: (before) => before,
  });
  const reasons = useMemo(() => new Map(stuck.map((one) => [one.workflow_id, one.reason])), [stuck]);
  const columns = useMemo(() => COLUMNS(reasons), [reasons]);
  return (
    <div className="stack">
      <Filters
        fields={[
          { name: "status", label: "Status", options: statusOptions(counts), several: true },
          { name: "name", label: "Name", options: (names ?? []).map((value) => ({ value })), free: true },
          { name: "application", label: "Application", example: "application:shop" },
          { name: "parent", label: "Parent", example: "parent:<id>" },
          { name: "pipeline", label: "Pipeline", example: "pipeline:nightly" },
          { name: "since", label: "Since", example: "since:2026-01-31T12:00Z" },
          { name: "until", label: "Until", example: "until:2026-01-31T12:00Z" },
        ]}
      />
      <Card flush>
        <Loaded query={workflows}>
          {(page) => (
            <Table
              label="Workflows"
              columns={columns}
              rows={page.items}
              id={(one) => one.id}
              href={(one) => to("workflows", one.id)}
              stale={workflows.isPlaceholderData}
              empty={
                page.next ? (
                  <Empty title="Nothing so far" icon="search">
                    What was looked through holds none. Press Next to search further back; by one condition alone it is found at once.
                  </Empty>
                ) : (
                <Empty title="No workflows" icon="graph">
                  Nothing fits the filter, or none was started: <code>hold.workflows.start(order, 7)</code> starts one, and{" "}
                  <code>holdfast worker --app shop:hold</code> carries it on.
                </Empty>
                )
              }
            />
          )}
        </Loaded>
      </Card>
      <Pager next={workflows.data?.next} shown={workflows.data?.items.length} />
    </div>
  );
}

function COLUMNS(stuck: ReadonlyMap<string, string>): readonly Column<Row>[] {
  return [
    { title: "Name", cell: (one) => <Text value={one.name || one.id} most={60} />, width: "24%" },
    { title: "Status", cell: (one) => <Status state={one.status} />, width: "130px" },
    {
      title: "What there is to say",
      cell: (one) => {
        if (one.place) return <span className="muted">number {one.place} in line of its pipeline</span>;
        const reason = stuck.get(one.id);
        return reason ? <Tag tone="warn">{reason}</Tag> : one.reason ? <Text value={one.reason} most={160} /> : null;
      },
      optional: true,
    },
    { title: "Application", cell: (one) => (one.application ? <Text value={one.application} most={30} /> : null), width: "110px", optional: true },
    { title: "Took", cell: (one) => <Took row={one} />, width: "90px", right: true, optional: true },
    { title: "Started", cell: (one) => <Time at={one.created_at} />, width: "110px", right: true },
  ];
}

function Took({ row }: { row: Row }) {
  const now = useNow();
  return <>{took(row.start_time, row.end_time, row.status, now)}</>;
}

const STRANDED: readonly Column<Stranded>[] = [
  { title: "Workflow", cell: (one) => <Text value={one.name || one.workflow_id} most={60} />, width: "22%" },
  { title: "Stage", cell: (one) => <Text value={one.stage} most={60} />, width: "18%" },
  { title: "Why", cell: (one) => <Text value={one.reason} most={200} /> },
  { title: "Queue", cell: (one) => <Text value={one.queue} most={30} />, width: "100px", optional: true },
  { title: "Since", cell: (one) => <Time at={one.since} />, width: "110px", right: true },
];

function StrandedTable({ rows }: { rows: readonly Stranded[] }) {
  return (
    <Table
      label="Stranded work"
      columns={STRANDED}
      rows={rows}
      id={(one) => `${one.workflow_id} ${one.stage} ${one.task}`}
      href={(one) => to("workflows", one.workflow_id, { stage: one.stage })}
      empty={
        <Empty title="Nothing is stranded">
          All that is due can be taken by somebody. Work is stranded when no worker serves its queue, knows its task, or takes its version of the code. <Go to={to("workers")}>Workers</Go> shows who does.
        </Empty>
      }
    />
  );
}

function Start({ names }: { names: readonly string[] | undefined }) {
  const may = useMay("workflows:operate");
  const ask = useAsk();
  const say = useSay();
  const go = useGo();
  const start = useAct((body: { name: string; input: never; idempotency_key: string | null; reason: string }) => api.post("/api/v1/workflows", { body }), {
    says: (made) => `Workflow ${made.id} is ${made.status.toLowerCase()}`,
    changes: [["workflows"]],
  });
  const none = names?.length === 0 ? "This server knows no workflow: serve with --app, and make them known with hold.workflows.add(…)." : undefined;
  const press = async () => {
    const answer = await ask({
      title: "Start a workflow",
      confirm: "Start",
      reason: "may",
      body: "It begins as soon as a worker is there.",
      fields: [
        { name: "name", label: "Workflow", type: "select", options: (names ?? []).map((name) => [name, name] as const), must: true },
        { name: "input", label: "Input", type: "textarea", value: "{}", hint: 'JSON: by name {"order": {"id": 7}}, or by place [7].' },
        { name: "key", label: "Idempotency key", hint: "Optional. The same key again gives the first workflow that had it." },
      ],
    });
    if (!answer) return;
    try {
      const input = (jsonOf(answer.input ?? "", "The input") ?? {}) as never;
      const made = await start.run({ name: answer.name ?? "", input, idempotency_key: answer.key || null, reason: answer.reason });
      if (made) go(to("workflows", made.id));
    } catch (error) {
      say.failed(error);
    }
  };
  return (
    <Button icon="play" look="primary" why={may.why ?? none} busy={start.busy} onClick={() => void press()}>
      Start
    </Button>
  );
}

/** A time as the API takes it; without an offset it is meant here. */
function moment(text: string | undefined): string | undefined {
  if (!text) return undefined;
  const at = new Date(text);
  return Number.isNaN(at.getTime()) ? text : at.toISOString();
}
