import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { type Answer, api } from "@/api/client";
import { useMay } from "@/api/session";
import { Go, useGo } from "@/app/Go";
import { to } from "@/app/url";
import { useAsk } from "@/parts/Ask";
import { Status, Tag } from "@/parts/Badge";
import { Button } from "@/parts/Button";
import { Card } from "@/parts/Card";
import { Facts } from "@/parts/Facts";
import { Json } from "@/parts/Json";
import { Loaded } from "@/parts/States";
import { Text } from "@/parts/Text";
import { Time, useNow } from "@/parts/Time";
import { useSay } from "@/parts/Toasts";
import { useAct } from "@/parts/useAct";
import { Awaited } from "@/screens/workflows/Awaited";
import { hasEnded, objectOf, took, type Workflow } from "@/screens/workflows/states";

type Stage = Answer<"/api/v1/workflows/{id}/stages/{stage}">;

/** One stage: its tasks, what it got and left, and what can be done about it. */
export function StagePanel({ workflow, stage, close }: { workflow: Workflow; stage: string; close: () => void }) {
  const path = { id: workflow.id, stage };
  const found = useQuery({
    queryKey: ["workflows", workflow.id, "stage", stage],
    queryFn: ({ signal }) => api.get("/api/v1/workflows/{id}/stages/{stage}", { path, signal }),
  });
  return (
    <Card title={<Text value={stage} most={80} />} actions={<Button small look="plain" icon="close" aria-label="Close the stage" onClick={close} />}>
      <Loaded query={found}>{(one) => <Shown key={`${stage} ${one.incarnation}`} workflow={workflow} stage={one} />}</Loaded>
    </Card>
  );
}

function Shown({ workflow, stage }: { workflow: Workflow; stage: Stage }) {
  const now = useNow();
  const [open, setOpen] = useState<Stage>();
  const held = workflow.work.filter((one) => one.stage === stage.ref && one.owner);
  const child = stage.engine_state.child;
  const shown = open ?? stage;
  return (
    <div className="stack">
      <div className="row">
        <Status state={stage.status} />
        {stage.incarnation > 1 && <Tag>life {stage.incarnation}</Tag>}
        {stage.stranded && <Tag tone="warn">{stage.stranded}</Tag>}
      </div>
      <Facts
        facts={[
          [stage.status === "SUCCEEDED" ? "Before that" : "Why", stage.note],
          ["Waits", stage.waits && <Awaited waits={stage.waits} />],
          ["Worked on by", held.length ? held.map((one) => <Go key={one.owner} to={to("workers", one.owner)}>{<Text value={one.owner} most={30} mono />}</Go>) : null],
          ["Workflow", typeof child === "string" ? <Go to={to("workflows", child)}><Text value={child} mono /></Go> : null],
          ["Began", stage.start_time && <Time at={stage.start_time} absolute />],
          ["Ended", stage.end_time && <Time at={stage.end_time} absolute />],
          ["Took", took(stage.start_time, stage.end_time, stage.status, now)],
          ["After", stage.after.length ? stage.after.join(", ") : null],
          ["Join", stage.after.length > 1 ? stage.join_type : null],
          ["Mutex", stage.mutex_key],
          ["Part of", stage.part_of],
        ]}
      />
      <Acts workflow={workflow} stage={stage} reveal={setOpen} />
      <h3>Tasks</h3>
      <ul className="workflows-tasks">
        {stage.tasks.map((task) => (
          <li key={task.id}>
            <div className="row">
              <Text value={task.name || task.implementing_class} most={60} />
              <Status state={task.status} />
              <span className="muted num">
                {took(task.start_time, task.end_time, task.status, now)}
                {task.attempt > 1 && ` · ${task.attempt} attempts`}
              </span>
            </div>
            {Object.keys(task.task_exception_details).length > 0 && (
              <p className={task.status === "SUCCEEDED" ? "workflows-before" : "workflows-error"}>
                <Text value={[task.task_exception_details.type, task.task_exception_details.message].filter(Boolean).join(": ")} />
              </p>
            )}
          </li>
        ))}
      </ul>
      {Object.keys(shown.context).length > 0 && (
        <>
          <h3>What it got</h3>
          <Json value={shown.context} label="What it got" />
        </>
      )}
      <h3>What it left</h3>
      <Json value={shown.outputs} label="What it left" />
    </div>
  );
}

function Acts({ workflow, stage, reveal }: { workflow: Workflow; stage: Stage; reveal: (stage: Stage) => void }) {
  const may = useMay("workflows:operate");
  const mayReveal = useMay("workflows:reveal");
  const ask = useAsk();
  const say = useSay();
  const go = useGo();
  const path = { id: workflow.id, stage: stage.ref };
  const changes = [["workflows"]];
  const says = (answer: { status: string }) => `The workflow is ${answer.status.toLowerCase()}`;
  const restart = useAct((reason: string) => api.post("/api/v1/workflows/{id}/stages/{stage}/restart", { path, body: { reason } }), { says, changes });
  const skip = useAct((reason: string) => api.post("/api/v1/workflows/{id}/stages/{stage}/skip", { path, body: { reason } }), { says, changes });
  const cancel = useAct((reason: string) => api.post("/api/v1/workflows/{id}/stages/{stage}/cancel", { path, body: { reason } }), { says, changes });
  const fork = useAct((body: { stage: string; context: Record<string, unknown>; reason: string }) => api.post("/api/v1/workflows/{id}/fork", { path: { id: workflow.id }, body }), {
    says: (made) => `Workflow ${made.id} is ${made.status.toLowerCase()}`,
    changes,
  });
  const show = useAct((reason: string) => api.post("/api/v1/workflows/{id}/reveal", { path: { id: workflow.id }, body: { reason, stage: stage.ref } }));
  const ended = hasEnded(stage.status);
  const isOver = hasEnded(workflow.status);
  return (
    <div className="row">
      <Button
        small
        icon="replay"
        why={may.why ?? (ended ? undefined : "Only a stage that has ended is run again.")}
        busy={restart.busy}
        onClick={async () => {
          const answer = await ask({
            title: "Run this stage again?",
            body: `Stage ${stage.ref} and everything after it run again, with new idempotency keys: effects that have happened may happen once more.`,
            confirm: "Run again",
            danger: true,
            reason: "must",
          });
          if (answer) await restart.run(answer.reason);
        }}
      >
        Run again
      </Button>
      <Button
        small
        why={may.why ?? (ended || isOver ? "What has ended cannot be left out." : undefined)}
        busy={skip.busy}
        onClick={async () => {
          const answer = await ask({ title: "Leave this stage out?", body: "It is not done; what comes after it runs all the same.", confirm: "Leave out", danger: true, reason: "must" });
          if (answer) await skip.run(answer.reason);
        }}
      >
        Leave out
      </Button>
      <Button
        small
        look="danger"
        why={may.why ?? (ended || isOver ? "It has ended." : undefined)}
        busy={cancel.busy}
        onClick={async () => {
          const answer = await ask({ title: "Cancel this stage?", body: "It ends, and what comes after it is halted.", confirm: "Cancel the stage", danger: true, reason: "must" });
          if (answer) await cancel.run(answer.reason);
        }}
      >
        Cancel
      </Button>
      <Button
        small
        icon="fork"
        why={may.why ?? (isOver ? undefined : "Only a workflow that has ended is forked.")}
        busy={fork.busy}
        onClick={async () => {
          const answer = await ask({
            title: "Fork from this stage?",
            body: `A new workflow begins with ${stage.ref}. What the other stages have left is taken over; this one stays as it is.`,
            confirm: "Fork",
            fields: [{ name: "context", label: "Changes of the input", type: "textarea", value: "{}", hint: 'JSON by name: {"order": {"id": 8}}.' }],
          });
          if (!answer) return;
          try {
            const made = await fork.run({ stage: stage.ref, context: objectOf(answer.context ?? "", "The input"), reason: answer.reason });
            if (made) go(to("workflows", made.id));
          } catch (error) {
            say.failed(error);
          }
        }}
      >
        Fork
      </Button>
      <Button
        small
        icon="eye"
        why={mayReveal.why}
        busy={show.busy}
        onClick={async () => {
          const answer = await ask({ title: "Reveal what is masked?", body: "Who looked, and why, is in the audit trail.", confirm: "Reveal", reason: "must" });
          const found = answer && (await show.run(answer.reason));
          if (found?.stage) reveal(found.stage);
        }}
      >
        Reveal
      </Button>
    </div>
  );
}
