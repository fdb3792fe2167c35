import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { useState } from "react";
import { type Answer, api } from "@/api/client";
import { useMay } from "@/api/session";
import { Go, useGo } from "@/app/Go";
import type { Routes } from "@/app/screens";
import { to } from "@/app/url";
import { useLive } from "@/live/live";
import { type Answer as Given, type AskField, useAsk } from "@/parts/Ask";
import { Status } from "@/parts/Badge";
import { Button } from "@/parts/Button";
import { Card, Head } from "@/parts/Card";
import { Facts } from "@/parts/Facts";
import { Json } from "@/parts/Json";
import { Empty, Loaded } from "@/parts/States";
import { type Column, Table } from "@/parts/Table";
import { Text } from "@/parts/Text";
import { Time } from "@/parts/Time";
import { useSay } from "@/parts/Toasts";
import { useAct } from "@/parts/useAct";

type Schedule = Answer<"/api/v1/schedules">[number];
type Shown = Answer<"/api/v1/schedules/{name}">;
type Entry = Shown["log"][number];

const OVERDUE = "No worker has fired it: none knows its workflow, or none is there.";
const OVERLAPS = [
  ["skip", "skip: nothing is started"],
  ["queue", "queue: the new run waits"],
  ["cancel_previous", "cancel_previous: the run before is canceled"],
] as const;

const COLUMNS: readonly Column<Schedule>[] = [
  { title: "Name", cell: (one) => <Text value={one.name} most={60} /> },
  { title: "State", cell: (one) => <State schedule={one} />, width: "100px" },
  { title: "Workflow", cell: (one) => <Text value={one.workflow} most={60} />, width: "20%", optional: true },
  { title: "Cron", cell: (one) => <Text value={one.cron} most={40} mono />, width: "130px" },
  { title: "Zone", cell: (one) => <Text value={one.timezone} most={30} />, width: "130px", optional: true },
  { title: "Last run", cell: (one) => (one.last_run ? <Go to={to("workflows", one.last_run)}><Text value={one.last_run} most={26} mono /></Go> : null), width: "200px", optional: true },
  { title: "Next", cell: (one) => <Time at={one.next_tick} />, width: "130px", right: true },
];

function List() {
  const schedules = useQuery({ queryKey: ["schedules", "list"], queryFn: ({ signal }) => api.get("/api/v1/schedules", { signal }) });
  useLive(["workflows"], [["schedules"]]);
  return (
    <>
      <Head title="Schedules" actions={<Make />}>
        Workflows that are started again and again, by cron. Any worker whose program knows the workflow fires them.
      </Head>
      <Card flush>
        <Loaded query={schedules}>
          {(found) => (
            <Table
              label="Schedules"
              columns={COLUMNS}
              rows={found}
              id={(one) => one.name}
              href={(one) => to("schedules", one.name)}
              empty={
                <Empty title="No schedules" icon="clock">
                  <code>hold.workflows.schedule("nightly", report, cron="0 3 * * *")</code> makes one, and so does the button above.
                </Empty>
              }
            />
          )}
        </Loaded>
      </Card>
    </>
  );
}

function State({ schedule }: { schedule: Schedule }) {
  if (schedule.paused) return <Status state="paused" />;
  return schedule.overdue ? <Status state="overdue" tone="warn" title={OVERDUE} /> : <Status state="active" />;
}

const LOG: readonly Column<Entry>[] = [
  { title: "No.", cell: (one) => one.seq, width: "50px", right: true },
  { title: "What", cell: (one) => one.type.replaceAll("_", " "), width: "130px" },
  { title: "Facts", cell: (one) => <Text value={said(one)} most={300} />, optional: true },
  { title: "At", cell: (one) => <Time at={one.at} absolute />, width: "180px", right: true },
];

function One() {
  const { id: name } = useParams({ strict: false }) as { id: string };
  const path = { name };
  const schedule = useQuery({ queryKey: ["schedules", name], queryFn: ({ signal }) => api.get("/api/v1/schedules/{name}", { path, signal }) });
  useLive(["workflows"], [["schedules", name]]);
  const mayReveal = useMay("workflows:reveal");
  const ask = useAsk();
  const [open, setOpen] = useState<Schedule>();
  const reveal = useAct((reason: string) => api.post("/api/v1/schedules/{name}/reveal", { path, body: { reason } }));
  return (
    <Loaded query={schedule}>
      {(found) => (
        <>
          <Head title={<Text value={found.name} most={100} />} back={<Go to={to("schedules")}>Schedules</Go>} badge={<State schedule={found} />} actions={<Acts schedule={found} />}>
            {found.overdue ? OVERDUE : undefined}
          </Head>
          <div className="stack">
            <div className="columns">
              <Card title="When">
                <Facts
                  facts={[
                    ["Cron", <Text value={found.cron} mono />],
                    ["Time zone", found.timezone],
                    ["While one runs", OVERLAPS.find(([value]) => value === found.overlap)?.[1] ?? found.overlap],
                    ["Missed ticks", found.catch_up === 0 ? "are left out" : `are made up for, ${found.catch_up} at most`],
                    ["Last tick", found.last_tick && <Time at={found.last_tick} absolute />],
                    ["Last run", found.last_run && <Go to={to("workflows", found.last_run)}><Text value={found.last_run} mono /></Go>],
                    ["Made", <Time at={found.created_at} absolute />],
                  ]}
                />
              </Card>
              <Card title={found.paused ? "Next ticks, were it not paused" : "Next ticks"}>
                <ol className="stack" aria-label="Next ticks">
                  {found.next.map((at) => (
                    <li key={at} className="row spread">
                      <span className="num">{local(at, found.timezone)}</span>
                      <span className="muted">
                        <Time at={at} />
                      </span>
                    </li>
                  ))}
                </ol>
              </Card>
            </div>
            <Card
              title={
                <>
                  What is started: <Go to={to("workflows", null, { name: found.workflow })}><Text value={found.workflow} most={60} /></Go>
                </>
              }
              actions={
                <Button
                  small
                  icon="eye"
                  why={mayReveal.why}
                  busy={reveal.busy}
                  onClick={async () => {
                    const answer = await ask({ title: "Reveal the input?", body: "Who looked, and why, is in the audit trail.", confirm: "Reveal", reason: "must" });
                    const shown = answer && (await reveal.run(answer.reason));
                    if (shown) setOpen(shown);
                  }}
                >
                  Reveal
                </Button>
              }
            >
              <Json value={inputOf(open ?? found)} label="Input" />
            </Card>
            <Card title="Lately" flush>
              <Table label="Lately" columns={LOG} rows={[...found.log].reverse()} id={(one) => String(one.seq)} empty={<Empty title="Nothing has happened yet" />} />
            </Card>
          </div>
        </>
      )}
    </Loaded>
  );
}

function Acts({ schedule }: { schedule: Shown }) {
  const may = useMay("workflows:operate");
  const ask = useAsk();
  const go = useGo();
  const path = { name: schedule.name };
  const changes = [["schedules"], ["workflows"]];
  const pause = useAct((reason: string) => api.post("/api/v1/schedules/{name}/pause", { path, body: { reason } }), { says: "It ticks no more", changes });
  const resume = useAct((reason: string) => api.post("/api/v1/schedules/{name}/resume", { path, body: { reason } }), { says: "It ticks again", changes });
  const run = useAct((reason: string) => api.post("/api/v1/schedules/{name}/run", { path, body: { reason } }), { says: (answer) => `Workflow ${answer.workflow} is started`, changes });
  const remove = useAct((reason: string) => api.post("/api/v1/schedules/{name}/remove", { path, body: { reason } }), { says: "It is taken away", changes: [["schedules", "list"]] });
  return (
    <>
      {schedule.paused ? (
        <Button
          icon="play"
          look="primary"
          why={may.why}
          busy={resume.busy}
          onClick={async () => {
            const answer = await ask({ title: "Let it tick again?", body: "From now on; what was missed meanwhile stays so.", confirm: "Resume" });
            if (answer) await resume.run(answer.reason);
          }}
        >
          Resume
        </Button>
      ) : (
        <Button
          icon="pause"
          why={may.why}
          busy={pause.busy}
          onClick={async () => {
            const answer = await ask({ title: "Let it tick no more?", body: "What it has started goes on.", confirm: "Pause" });
            if (answer) await pause.run(answer.reason);
          }}
        >
          Pause
        </Button>
      )}
      <Button
        icon="send"
        why={may.why}
        busy={run.busy}
        onClick={async () => {
          const answer = await ask({ title: "Start its workflow now?", body: `Workflow ${schedule.workflow} is started once, besides its schedule.`, confirm: "Run now" });
          const made = answer && (await run.run(answer.reason));
          if (made) go(to("workflows", made.workflow));
        }}
      >
        Run now
      </Button>
      <Make schedule={schedule} />
      <Button
        icon="bin"
        look="danger"
        why={may.why}
        busy={remove.busy}
        onClick={async () => {
          const answer = await ask({ title: "Take this schedule away?", body: "What it has started goes on, and its log stays. A program that adds it when it begins will make it again.", confirm: "Remove", danger: true, reason: "must" });
          if (answer && (await remove.run(answer.reason))) go(to("schedules"));
        }}
      >
        Remove
      </Button>
    </>
  );
}

/** Make a schedule, or change one. The input of one that is changed has to be given again: it may be masked here. */
function Make({ schedule }: { schedule?: Shown }) {
  const may = useMay("workflows:operate");
  const ask = useAsk();
  const say = useSay();
  const go = useGo();
  const facets = useQuery({ queryKey: ["workflows", "facets"], queryFn: ({ signal }) => api.get("/api/v1/workflows/facets", { signal }) });
  const add = useAct((body: Parameters<typeof bodyOf>[0]) => api.post("/api/v1/schedules", { body: bodyOf(body) }), {
    says: (made) => `Schedule ${made.name} ${made.paused ? "is paused" : "ticks"}`,
    changes: [["schedules"]],
  });
  const names = facets.data?.startable ?? [];
  const none = facets.data && !names.length ? "This server knows no workflow: serve with --app, and make them known with hold.workflows.add(…)." : undefined;
  const unknown = schedule && facets.data && !names.includes(schedule.workflow) ? `This server's program does not know workflow ${schedule.workflow}.` : undefined;
  const fields: readonly AskField[] = [
    ...(schedule ? [] : [{ name: "name", label: "Name", must: true }]),
    { name: "workflow", label: "Workflow", type: "select", options: names.map((name) => [name, name] as const), value: schedule?.workflow ?? names[0] ?? "", must: true },
    { name: "cron", label: "Cron", value: schedule?.cron ?? "", must: true, hint: "Minute, hour, day, month, weekday: 0 3 * * *; or @daily." },
    { name: "timezone", label: "Time zone", value: schedule?.timezone ?? "UTC", must: true, hint: "Such as Europe/Berlin." },
    { name: "input", label: "Input", type: "textarea", value: schedule ? JSON.stringify(inputOf(schedule)) : "{}", hint: schedule ? "JSON. Masked values (***) must be given again." : "JSON: by name {…}, or by place […]." },
    { name: "overlap", label: "While the run before has not ended", type: "select", options: OVERLAPS, value: schedule?.overlap ?? "skip" },
    { name: "catch_up", label: "Missed ticks to make up for", type: "number", value: String(schedule?.catch_up ?? 1) },
  ];
  const press = async () => {
    const answer = await ask({ title: schedule ? "Change this schedule" : "Make a schedule", confirm: schedule ? "Change" : "Make", fields });
    if (!answer) return;
    try {
      const made = await add.run({ name: schedule?.name ?? answer.name ?? "", given: answer, input: JSON.parse(answer.input || "{}") as never });
      if (made && !schedule) go(to("schedules", made.name));
    } catch (error) {
      say.failed(error instanceof SyntaxError ? new Error(`The input is not JSON: ${error.message}`) : error);
    }
  };
  return (
    <Button {...(schedule ? {} : { icon: "plus" as const, look: "primary" as const })} why={may.why ?? none ?? unknown} busy={add.busy} onClick={() => void press()}>
      {schedule ? "Change" : "New schedule"}
    </Button>
  );
}

function bodyOf({ name, given, input }: { name: string; given: Given; input: never }) {
  return {
    name, input, reason: given.reason, workflow: given.workflow ?? "", cron: given.cron ?? "", timezone: given.timezone || "UTC",
    overlap: (given.overlap ?? "skip") as "skip", catch_up: Math.trunc(Number(given.catch_up)) || 0, paused: null,
  }; // prettier-ignore
}

function inputOf(schedule: Schedule): unknown {
  return schedule.args.length ? schedule.args : schedule.kwargs;
}

/** A time on the clocks of a zone. */
function local(at: string, zone: string): string {
  try {
    return new Intl.DateTimeFormat("en-GB", { timeZone: zone, dateStyle: "medium", timeStyle: "medium" }).format(new Date(at));
  } catch {
    return at;
  }
}

function said(one: Entry): string {
  const facts = Object.entries(one.facts).filter(([, value]) => value !== null && value !== "");
  return facts.map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : String(value)}`).join(", ");
}

export const routes: Routes = { "/": List, "/$id": One };
