import "@/screens/sagas/sagas.css";
import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { useState } from "react";
import { type Answer, api } from "@/api/client";
import { useMay } from "@/api/session";
import { Go } from "@/app/Go";
import { to } from "@/app/url";
import { useLive } from "@/live/live";
import { useAsk } from "@/parts/Ask";
import { Status, Tag } from "@/parts/Badge";
import { Button } from "@/parts/Button";
import { Card, Head } from "@/parts/Card";
import { Facts } from "@/parts/Facts";
import { Json } from "@/parts/Json";
import { Loaded } from "@/parts/States";
import { Text } from "@/parts/Text";
import { Time } from "@/parts/Time";
import { plural } from "@/parts/text";
import { type Tone, toneOf } from "@/parts/tones";
import { useAct } from "@/parts/useAct";

type Shown = Answer<"/api/v1/sagas/{id}">;
type Step = Shown["steps"][number];
type Call = Shown["entries"][number];
type Revealed = Answer<"/api/v1/sagas/{id}/reveal", "post">["saga"];

/** What a step's state means here, where "unknown" and "unresolved" are what somebody has to look at. */
const TONES: Readonly<Record<string, Tone>> = { unknown: "bad", unresolved: "bad", waiting: "quiet", skipped: "quiet" };

const MEANINGS: Readonly<Record<string, string>> = {
  unknown: "Its call was given up, and may have happened all the same.",
  unresolved: "Undoing it was given up: what it did may still stand.",
  skipped: "It was never called.",
};

export function One() {
  const { id } = useParams({ strict: false }) as { id: string };
  const saga = useQuery({ queryKey: ["sagas", id], queryFn: ({ signal }) => api.get("/api/v1/sagas/{id}", { path: { id }, signal }) });
  useLive(["outbox", "event"], [["sagas", id]]);
  return <Loaded query={saga}>{(found) => <Saga key={id} saga={found} />}</Loaded>;
}

function Saga({ saga }: { saga: Shown }) {
  const [revealed, setRevealed] = useState<Revealed>();
  const results = new Map((revealed ?? saga).steps.map((step) => [step.name, step.result]));
  return (
    <>
      <Head
        title={
          <>
            <Text value={saga.definition} /> <span className="muted">{saga.version > 1 ? `version ${saga.version}` : ""}</span>
          </>
        }
        back={<Go to={to("sagas")}>Sagas</Go>}
        badge={<Status state={saga.state} />}
        actions={<Actions saga={saga} reveal={setRevealed} isRevealed={revealed !== undefined} />}
      >
        {WORDS[saga.state]}
      </Head>
      <div className="columns">
        <Card title="Steps">
          <ol className="sagas-flow" aria-label="Steps">
            {saga.steps.map((step) => (
              <OneStep key={step.name} saga={saga} step={step} result={results.get(step.name)} calls={saga.entries.filter((call) => call.step === step.name)} />
            ))}
          </ol>
        </Card>
        <div className="stack">
          <Card title="The saga">
            <Facts
              facts={[
                ["Id", <Text key="id" value={saga.saga_id} mono />],
                ["Reason", saga.reason],
                ["Subject", <Go key="subject" to={to("sagas", null, { subject_id: saga.subject_id })}>{<Text value={saga.subject_id} />}</Go>],
                ["Started", <Time key="started" at={saga.started_at} absolute />],
                ["Changed", <Time key="changed" at={saga.changed_at} absolute />],
                ["Deadline", saga.deadline_at && <Time key="deadline" at={saga.deadline_at} />],
                ["Calls", <Go key="calls" to={to("outbox", null, { saga_id: saga.saga_id })}>{plural(saga.entries.length, "entry", "entries")} in the outbox</Go>],
                ["Trail", <Go key="trail" to={to("audit", null, { subject: saga.subject_id })}>Events of its subject</Go>],
                ["Known here", saga.known ? null : "No: its definition is not in this server, so nothing can be done. Serve its program: holdfast serve --app module:hold"],
              ]}
            />
          </Card>
          {saga.data !== null && (
            <Card title={revealed ? "Data" : "Data, masked"}>
              <Json value={(revealed ?? saga).data} label="Data" />
            </Card>
          )}
        </div>
      </div>
    </>
  );
}

const WORDS: Readonly<Record<string, string>> = {
  running: "Its steps are called one after the other.",
  completed: "Every step has happened.",
  compensating: "It has turned round: what may have happened is being undone, the last step first.",
  compensated: "What had happened was undone.",
  stuck: "Something was given up, and nobody tries it any more. Resume it, or do the step by hand and say so.",
};

function OneStep({ saga, step, result, calls }: { saga: Shown; step: Step; result: unknown; calls: readonly Call[] }) {
  const tone = TONES[step.state] ?? toneOf(step.state);
  const forward = calls.filter((call) => call.direction !== "backward");
  const backward = calls.filter((call) => call.direction === "backward");
  return (
    <li className={`sagas-step sagas-${tone}`} data-step={step.name}>
      <div className="sagas-step-head">
        <h3>
          <Text value={step.name} most={80} />
        </h3>
        <Status state={step.state} tone={tone} />
        {step.pivot && (
          <span title="Once it is done there is no way back, only forward.">
            <Tag tone="busy">pivot</Tag>
          </span>
        )}
        {step.after && step.after.length > 0 && <span className="muted">after {step.after.join(", ")}</span>}
        {step.resolvable && <Resolve saga={saga} step={step} />}
      </div>
      {(step.error || MEANINGS[step.state]) && (
        <p className="sagas-step-head muted">
          {step.error && <Text value={step.error} most={200} />} {MEANINGS[step.state]}
        </p>
      )}
      <Way title="Does it" calls={forward} none="Not called yet." result={result} />
      <Way title="Undoes it" calls={backward} none={step.compensable === false ? "It has no compensation." : "Not undone."} />
    </li>
  );
}

function Way({ title, calls, none, result }: { title: string; calls: readonly Call[]; none: string; result?: unknown }) {
  return (
    <div className="sagas-way">
      <h4>{title}</h4>
      {calls.length === 0 && <span className="muted">{none}</span>}
      {calls.map((call) => (
        <div key={call.entry_id} className="sagas-call">
          <Go to={to("outbox", call.entry_id)}>
            <Text value={call.operation} most={60} />
          </Go>
          <Status state={call.status} />
          <span className="muted num">{plural(call.attempts, "try", "tries")}</span>
          {call.last_error && <Text value={call.last_error} most={100} />}
          {call.last_attempt_at && <Time at={call.last_attempt_at} />}
        </div>
      ))}
      {result !== null && result !== undefined && <Json value={result} open={0} label={`Result of ${title.toLowerCase()}`} />}
    </div>
  );
}

function Resolve({ saga, step }: { saga: Shown; step: Step }) {
  const ask = useAsk();
  const may = useMay("sagas:operate");
  const isUndo = step.state === "unresolved";
  const resolve = useAct(
    (reason: string) => api.post("/api/v1/sagas/{id}/resolve", { path: { id: saga.saga_id }, body: { step: step.name, reason } }),
    { says: (after) => `${step.name} is resolved; the saga is ${after.state}`, changes: [["sagas"]] },
  );
  return (
    <Button
      small
      icon="check"
      why={may.why}
      busy={resolve.busy}
      onClick={async () => {
        const answer = await ask({
          title: `Was ${step.name} ${isUndo ? "undone" : "done"} by hand?`,
          body: isUndo
            ? "The saga takes it from you that what this step did was undone, and goes on undoing the steps before it. Nothing checks it."
            : "The saga takes it from you that this step has happened, and goes on with the next ones. Nothing checks it.",
          confirm: isUndo ? "It was undone" : "It was done",
          reason: "must",
        });
        if (answer) await resolve.run(answer.reason);
      }}
    >
      {isUndo ? "Undone by hand…" : "Done by hand…"}
    </Button>
  );
}

function Actions({ saga, reveal, isRevealed }: { saga: Shown; reveal: (saga: Revealed) => void; isRevealed: boolean }) {
  const ask = useAsk();
  const may = useMay("sagas:operate");
  const mayReveal = useMay("sagas:reveal");
  const path = { id: saga.saga_id };
  const changes = [["sagas"], ["outbox"]];
  const resume = useAct((reason: string) => api.post("/api/v1/sagas/{id}/resume", { path, body: { reason } }), { says: (after) => `The saga is ${after.state}`, changes });
  const cancel = useAct((reason: string) => api.post("/api/v1/sagas/{id}/cancel", { path, body: { reason } }), { says: (after) => `The saga is ${after.state}`, changes });
  const open = useAct((reason: string) => api.post("/api/v1/sagas/{id}/reveal", { path, body: { reason } }));
  const bars = (act: string) => may.why ?? (saga.moves.find((move) => move.act === act)?.reason || undefined);
  return (
    <>
      <Button
        icon="play"
        look="primary"
        why={bars("resume")}
        busy={resume.busy}
        onClick={async () => {
          const answer = await ask({ title: "Resume this saga?", body: "What was given up is tried again, under the same ids and with new budgets of attempts; payloads are made anew.", confirm: "Resume", reason: "may" });
          if (answer) await resume.run(answer.reason);
        }}
      >
        Resume
      </Button>
      <Button
        icon="replay"
        look="danger"
        why={bars("cancel")}
        busy={cancel.busy}
        onClick={async () => {
          const answer = await ask({
            title: "Undo this saga?",
            body: "It turns round: every step that may have happened is compensated, the last one first. A call that is under way is waited for. Once the pivot has succeeded it can no longer be undone.",
            confirm: "Undo",
            danger: true,
            reason: "must",
          });
          if (answer) await cancel.run(answer.reason);
        }}
      >
        Undo
      </Button>
      <Button
        icon="eye"
        why={isRevealed ? "It is shown already." : mayReveal.why}
        busy={open.busy}
        onClick={async () => {
          const answer = await ask({ title: "Reveal the data?", body: "Its data and the results of its steps are shown as they are stored. That you looked, and why, is in the audit trail.", confirm: "Reveal", reason: "must" });
          const found = answer && (await open.run(answer.reason));
          if (found) reveal(found.saga);
        }}
      >
        Reveal
      </Button>
    </>
  );
}
