import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { address } from "@/api/base";
import { api } from "@/api/client";
import { Go } from "@/app/Go";
import { to, useUrl } from "@/app/url";
import { useLive } from "@/live/live";
import { useMay } from "@/api/session";
import { useAsk } from "@/parts/Ask";
import { Status, Tag } from "@/parts/Badge";
import { Button } from "@/parts/Button";
import { Card, Head } from "@/parts/Card";
import { Facts } from "@/parts/Facts";
import { Json } from "@/parts/Json";
import { Empty, Loaded } from "@/parts/States";
import { type Column, Table } from "@/parts/Table";
import { Tabs } from "@/parts/Tabs";
import { Text } from "@/parts/Text";
import { plural, whole } from "@/parts/text";
import { Time, useNow } from "@/parts/Time";
import { useAct } from "@/parts/useAct";
import { Acts } from "@/screens/workflows/Acts";
import { Awaited } from "@/screens/workflows/Awaited";
import { Dag } from "@/screens/workflows/Dag";
import { Log, Moments, momentOf } from "@/screens/workflows/Log";
import { StagePanel } from "@/screens/workflows/StagePanel";
import { hasEnded, type Past, type Row, type StageRow, took, type Workflow } from "@/screens/workflows/states";
import { Waterfall } from "@/screens/workflows/Waterfall";

const AT_ONCE = 200;

export function One() {
  const { id } = useParams({ strict: false }) as { id: string };
  const workflow = useQuery({ queryKey: ["workflows", id, "show"], queryFn: ({ signal }) => api.get("/api/v1/workflows/{id}", { path: { id }, signal }) });
  useLive(["workflows"], [["workflows", id]]);
  return <Loaded query={workflow}>{(found) => <Shown workflow={found} />}</Loaded>;
}

function Shown({ workflow }: { workflow: Workflow }) {
  const url = useUrl();
  const chosen = url.get("stage");
  const choose = (ref: string | null) => url.set({ stage: ref === chosen ? null : ref }, { replace: true });
  const seq = momentOf(url.get("at"), workflow.version);
  const past = useQuery({
    queryKey: ["workflows", workflow.id, "at", seq],
    queryFn: ({ signal }) => api.get("/api/v1/workflows/{id}/at/{seq}", { path: { id: workflow.id, seq: seq ?? 0 }, signal }),
    enabled: seq !== undefined,
    placeholderData: (before) => before,
  });
  const then = seq === undefined ? undefined : past.data;
  return (
    <>
      <Head
        title={<Text value={workflow.name || workflow.id} most={100} />}
        back={<Go to={to("workflows")}>Workflows</Go>}
        badge={<Status state={workflow.status} />}
        actions={<Acts workflow={workflow} />}
      />
      <div className="stack">
        <Summary workflow={workflow} />
        <div className={chosen ? "workflows-split" : "stack"}>
          <Tabs
            label="The workflow"
            tabs={[
              {
                name: "graph",
                title: "Graph",
                body: () => (
                  <div className="stack">
                    <Moments workflow={workflow} past={then} />
                    <Drawn workflow={workflow} past={then} chosen={chosen} choose={choose} />
                  </div>
                ),
              },
              { name: "timeline", title: "Timeline", body: () => <Waterfall id={workflow.id} chosen={chosen} choose={choose} /> },
              { name: "stages", title: `Stages (${whole(workflow.stages.length)})`, body: () => <Stages workflow={workflow} past={undefined} choose={choose} /> },
              {
                name: "log",
                title: "Log",
                body: () => (
                  <div className="stack">
                    <Moments workflow={workflow} past={then} />
                    <Log workflow={workflow} at={seq} />
                  </div>
                ),
              },
              { name: "more", title: "Input, guarantees", body: () => <More workflow={workflow} /> },
            ]}
          />
          {chosen && <StagePanel workflow={workflow} stage={chosen} close={() => choose(null)} />}
        </div>
      </div>
    </>
  );
}

function Summary({ workflow }: { workflow: Workflow }) {
  const now = useNow();
  const ended = workflow.stages.filter((stage) => hasEnded(stage.status)).length;
  const waits = workflow.stages.filter((stage) => stage.waits !== null);
  const stuck = workflow.stages.filter((stage) => stage.stranded !== null);
  const lost = workflow.finalizers.filter((one) => one.state === "FAILED" || one.state === "LOST").length;
  const owners = [...new Set(workflow.work.flatMap((one) => (one.owner ? [one.owner] : [])))];
  const held = workflow.is_paused ? workflow.paused : null;
  return (
    <Card>
      <Facts
        wide
        facts={[
          ["Id", <Text value={workflow.id} mono />],
          ["Why", workflow.reason],
          ["Held by", held && <>{<Text value={held.paused_by} most={60} />}, <Time at={held.pause_time} />{held.reason && <>: <Text value={held.reason} most={200} /></>}</>],
          ["Canceled by", workflow.canceled_by],
          ["Stages", `${whole(ended)} of ${whole(workflow.stages.length)} have ended`],
          ["Waits", waits.length ? <Waiting stages={waits} /> : null],
          ["Finalizers", lost ? <Tag tone="warn">{`${plural(lost, "finalizer")} failed or lost`}</Tag> : null],
          ["Stranded", stuck.length ? <Tag tone="warn">{`${stuck[0]!.ref}: ${stuck[0]!.stranded}`}</Tag> : null],
          ["Worked on by", owners.length ? <span className="row">{owners.slice(0, 5).map((owner) => <Go key={owner} to={to("workers", owner)}><Text value={owner} most={30} mono /></Go>)}</span> : null],
          ["Place", workflow.place === null ? null : `number ${workflow.place} in line of pipeline ${workflow.pipeline}`],
          ["Started", <Time at={workflow.start_time ?? workflow.created_at} absolute />],
          ["Ended", workflow.end_time && <Time at={workflow.end_time} absolute />],
          ["Took", took(workflow.start_time, workflow.end_time, workflow.status, now)],
          ["Parent", workflow.parent && <Go to={to("workflows", workflow.parent)}><Text value={workflow.parent} mono /></Go>],
          ["Forked from", workflow.forked_from && <Go to={to("workflows", workflow.forked_from[0], { stage: workflow.forked_from[1] })}><Text value={workflow.forked_from.join(", stage ")} mono /></Go>],
          ["Application", workflow.application],
          ["Pipeline", workflow.place === null ? workflow.pipeline : null],
          ["Queue", workflow.queue === "default" ? null : workflow.queue],
          ["Priority", workflow.priority || null],
          ["Key", workflow.idempotency_key],
          ["Code", workflow.code_version],
        ]}
      />
    </Card>
  );
}

function Waiting({ stages }: { stages: readonly StageRow[] }) {
  return (
    <ul>
      {stages.slice(0, 5).map((stage) => (
        <li key={stage.ref}>
          <Text value={stage.ref} most={60} /> <Awaited waits={stage.waits!} />
        </li>
      ))}
      {stages.length > 5 && <li className="muted">and {plural(stages.length - 5, "other stage")}</li>}
    </ul>
  );
}

function Drawn({ workflow, past, chosen, choose }: { workflow: Workflow; past: Past | undefined; chosen: string | undefined; choose: (ref: string) => void }) {
  const graph = useQuery({
    queryKey: ["workflows", workflow.id, "graph"],
    queryFn: ({ signal }) => api.get("/api/v1/workflows/{id}/graph", { path: { id: workflow.id }, signal }),
  });
  return (
    <Loaded query={graph}>
      {(found) =>
        found.drawn ? (
          <Card
            title="Graph"
            flush
            actions={
              <a className="button small" href={address(`/api/v1/workflows/${encodeURIComponent(workflow.id)}/graph.svg`)} download={`${workflow.id}.svg`}>
                SVG
              </a>
            }
          >
            <Dag graph={found} past={past} chosen={chosen} choose={choose} />
          </Card>
        ) : (
          <div className="stack">
            <p className="muted" role="note">
              {whole(found.stages)} stages are too many to draw: nobody could follow the lines. Here they are as a list.
            </p>
            <Stages workflow={workflow} past={past} choose={choose} />
          </div>
        )
      }
    </Loaded>
  );
}

function Stages({ workflow, past, choose }: { workflow: Workflow; past: Past | undefined; choose: (ref: string) => void }) {
  const [most, setMost] = useState(AT_ONCE);
  const [wanted, setWanted] = useState("");
  const rows = useMemo(() => workflow.stages.filter((stage) => `${stage.ref} ${stage.status}`.toLowerCase().includes(wanted.trim().toLowerCase())), [workflow.stages, wanted]);
  const columns: readonly Column<StageRow>[] = [
    {
      title: "Stage",
      cell: (stage) => (
        <button type="button" className="workflows-link" onClick={() => choose(stage.ref)}>
          <Text value={stage.ref} most={60} />
        </button>
      ),
      width: "26%",
    },
    { title: "Status", cell: (stage) => <Status state={past ? (past.stages[stage.ref]?.status ?? "NOT_STARTED") : stage.status} />, width: "130px" },
    { title: "What there is to say", cell: (stage) => <Text value={stage.stranded ?? stage.waits?.words ?? (stage.note || null)} most={200} />, optional: true },
    { title: "Tries", cell: (stage) => stage.attempts || "", width: "60px", right: true, optional: true },
    { title: "Took", cell: (stage) => <Took stage={stage} />, width: "90px", right: true },
  ];
  return (
    <div className="stack">
      {workflow.stages.length > 20 && <input className="field workflows-find" aria-label="Find a stage" placeholder="Find a stage by name or status" value={wanted} onChange={(event) => setWanted(event.target.value)} />}
      <Card flush>
        <Table label="Stages" columns={columns} rows={rows.slice(0, most)} id={(stage) => stage.ref} empty={<Empty title="No stage fits" icon="search" />} />
      </Card>
      {rows.length > most && (
        <Button small look="plain" onClick={() => setMost(most * 5)}>
          {plural(rows.length - most, "more stage")}
        </Button>
      )}
    </div>
  );
}

function Took({ stage }: { stage: StageRow }) {
  const now = useNow();
  return <>{took(stage.start_time, stage.end_time, stage.status, now)}</>;
}

const CHILDREN: readonly Column<Row>[] = [
  { title: "Name", cell: (one) => <Text value={one.name || one.id} most={60} /> },
  { title: "Status", cell: (one) => <Status state={one.status} />, width: "130px" },
  { title: "Started", cell: (one) => <Time at={one.created_at} />, width: "110px", right: true },
];

function More({ workflow }: { workflow: Workflow }) {
  const mayReveal = useMay("workflows:reveal");
  const may = useMay("workflows:operate");
  const ask = useAsk();
  const [open, setOpen] = useState<{ context: object; trigger: object }>();
  const path = { id: workflow.id };
  const reveal = useAct((reason: string) => api.post("/api/v1/workflows/{id}/reveal", { path, body: { reason } }));
  const again = useAct((finalizer: string) => api.post("/api/v1/workflows/finalizers/{finalizer}/run", { path: { finalizer }, body: { reason: "" } }), {
    says: "A worker will run it",
    changes: [["workflows", workflow.id]],
  });
  const { guarantees } = workflow;
  return (
    <div className="stack">
      <Card
        title="Input"
        actions={
          <Button
            small
            icon="eye"
            why={mayReveal.why}
            busy={reveal.busy}
            onClick={async () => {
              const answer = await ask({ title: "Reveal the input?", body: "Who looked, and why, is in the audit trail.", confirm: "Reveal", reason: "must" });
              const found = answer && (await reveal.run(answer.reason));
              if (found) setOpen(found);
            }}
          >
            Reveal
          </Button>
        }
      >
        <div className="stack">
          <Json value={open?.context ?? workflow.context} label="Input" />
          <h3>Trigger</h3>
          <Json value={open?.trigger ?? workflow.trigger} label="Trigger" open={1} />
        </div>
      </Card>
      <Card title="What it guarantees">
        <div className="stack">
          <p>{guarantees.words}</p>
          <ul className="workflows-tasks">
            {guarantees.steps.slice(0, 100).map((step, at) => (
              <li key={at}>
                <Text value={step.stage} most={60} /> <Tag tone={guarantees.weakest.includes(step.stage) ? "warn" : "quiet"}>{step.label}</Tag> <span className="muted">{step.words}</span>
              </li>
            ))}
          </ul>
        </div>
      </Card>
      {workflow.finalizers.length > 0 && (
        <Card title="Finalizers">
          <ul className="workflows-tasks">
            {workflow.finalizers.map((one) => (
              <li key={one.id}>
                <div className="row">
                  <Text value={one.name} most={60} />
                  <Status state={one.state.toLowerCase()} />
                  <span className="muted">
                    of <Text value={one.stage} most={60} />, {plural(one.attempts, "attempt")}
                  </span>
                  {(one.state === "FAILED" || one.state === "LOST") && (
                    <Button small icon="replay" why={may.why} busy={again.busy} onClick={() => void again.run(one.id)}>
                      Run again
                    </Button>
                  )}
                </div>
                {one.last_error && (
                  <p className="workflows-error">
                    <Text value={one.last_error} />
                  </p>
                )}
              </li>
            ))}
          </ul>
        </Card>
      )}
      {workflow.children.length > 0 && (
        <Card title="Workflows that it has started" flush actions={<Go to={to("workflows", null, { parent: workflow.id })}>All of them</Go>}>
          <Table label="Children" columns={CHILDREN} rows={workflow.children} id={(one) => one.id} href={(one) => to("workflows", one.id)} />
        </Card>
      )}
    </div>
  );
}
