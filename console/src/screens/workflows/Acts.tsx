import { api } from "@/api/client";
import { useMay } from "@/api/session";
import { useAsk } from "@/parts/Ask";
import { Button } from "@/parts/Button";
import { useSay } from "@/parts/Toasts";
import { useAct } from "@/parts/useAct";
import { hasEnded, hasFailed, jsonOf, type Workflow } from "@/screens/workflows/states";

/** A yes or no: `reason` is what the trail keeps of the comment. */
type Word = { name: string; comment: string | null; reason: string };

/** What can be done about a whole workflow. */
export function Acts({ workflow }: { workflow: Workflow }) {
  const may = useMay("workflows:operate");
  const ask = useAsk();
  const say = useSay();
  const path = { id: workflow.id };
  const changes = [["workflows"]];
  const says = (answer: { status: string }) => `The workflow is ${answer.status.toLowerCase()}`;
  const pause = useAct((reason: string) => api.post("/api/v1/workflows/{id}/pause", { path, body: { reason } }), { says, changes });
  const resume = useAct((reason: string) => api.post("/api/v1/workflows/{id}/resume", { path, body: { reason } }), { says, changes });
  const retry = useAct((body: { reason: string; code_version: string | null }) => api.post("/api/v1/workflows/{id}/retry", { path, body }), { says, changes });
  const cancel = useAct((reason: string) => api.post("/api/v1/workflows/{id}/cancel", { path, body: { reason } }), { says, changes });
  const recover = useAct((reason: string) => api.post("/api/v1/workflows/{id}/recover", { path, body: { reason } }), {
    says: (answer) => (answer.status === "skipped" ? `Nothing was missing${answer.message ? `: ${answer.message}` : ""}` : `It is ${answer.status}: ${answer.message}`),
    changes,
  });
  const heard = { says: (answer: { taken: boolean }) => (answer.taken ? "A stage waited for it and goes on" : "It is kept until a stage waits for it"), changes };
  const signal = useAct((body: { name: string; value: unknown; stage: string | null; reason: string }) => api.post("/api/v1/workflows/{id}/signal", { path, body }), heard);
  const approve = useAct((body: Word) => api.post("/api/v1/workflows/{id}/approve", { path, body }), heard);
  const reject = useAct((body: Word) => api.post("/api/v1/workflows/{id}/reject", { path, body }), heard);
  const over = hasEnded(workflow.status);
  const failed = workflow.stages.filter((stage) => hasFailed(stage.status)).length;
  const awaited = workflow.stages.find((stage) => stage.waits?.kind === "signal")?.waits?.words.match(/'(.*)'/)?.[1];

  const sendWord = async (word: typeof approve, question: { title: string; body: string; confirm: string; danger?: boolean }) => {
    const answer = await ask({ ...question, reason: "no", fields: [{ name: "comment", label: "Comment", type: "textarea", hint: "Optional: the workflow gets it, and the audit trail." }] });
    if (answer) await word.run({ name: awaited ?? "", comment: answer.comment || null, reason: answer.comment ?? "" });
  };
  const sendSignal = async () => {
    const answer = await ask({
      title: "Send a signal",
      body: "A stage that waits for it goes on; otherwise it is kept until one does.",
      confirm: "Send",
      fields: [
        { name: "name", label: "Name", value: awaited ?? "", must: true },
        { name: "value", label: "Value", type: "textarea", value: "null", hint: "JSON." },
        { name: "stage", label: "Only for the stage", hint: "Optional." },
      ],
    });
    if (!answer) return;
    try {
      await signal.run({ name: answer.name ?? "", value: jsonOf(answer.value ?? "", "The value") ?? null, stage: answer.stage || null, reason: answer.reason });
    } catch (error) {
      say.failed(error);
    }
  };
  return (
    <>
      {awaited && !over && (
        <>
          <Button
            icon="check"
            look="primary"
            why={may.why}
            busy={approve.busy}
            onClick={() => void sendWord(approve, { title: `Say yes to '${awaited}'?`, body: "The stage that waits for it goes on, and is told who approved.", confirm: "Approve" })}
          >
            Approve
          </Button>
          <Button
            icon="close"
            why={may.why}
            busy={reject.busy}
            onClick={() => void sendWord(reject, { title: `Say no to '${awaited}'?`, body: "An approval stage fails, unless it goes on with a no as well; a task of your own decides what it does with that.", confirm: "Reject", danger: true })}
          >
            Reject
          </Button>
        </>
      )}
      {workflow.is_paused ? (
        <Button
          icon="play"
          look="primary"
          why={may.why}
          busy={resume.busy}
          onClick={async () => {
            const answer = await ask({ title: "Let it go on?", body: "What was due meanwhile is due now.", confirm: "Resume" });
            if (answer) await resume.run(answer.reason);
          }}
        >
          Resume
        </Button>
      ) : (
        <Button
          icon="pause"
          why={may.why ?? (workflow.status === "RUNNING" ? undefined : "Only what runs can be held.")}
          busy={pause.busy}
          onClick={async () => {
            const answer = await ask({ title: "Hold this workflow?", body: "What workers have taken ends, nothing new begins, and no time runs out until it is resumed.", confirm: "Pause" });
            if (answer) await pause.run(answer.reason);
          }}
        >
          Pause
        </Button>
      )}
      <Button
        icon="replay"
        look={over && failed ? "primary" : undefined}
        why={may.why ?? (!failed ? "No stage of it has failed." : workflow.status === "CANCELED" ? "What was canceled stays so; fork it." : undefined)}
        busy={retry.busy}
        onClick={async () => {
          const answer = await ask({
            title: "Run what has failed again?",
            body: "Every stage that has failed, and what comes after it, runs again with the idempotency keys that it had.",
            confirm: "Retry",
            fields: [{ name: "code", label: "Code version", hint: "Optional: let workers that serve this version of the code run it." }],
          });
          if (answer) await retry.run({ reason: answer.reason, code_version: answer.code || null });
        }}
      >
        Retry
      </Button>
      <Button icon="send" why={may.why ?? (over ? "It has ended." : undefined)} busy={signal.busy} onClick={() => void sendSignal()}>
        Signal
      </Button>
      <Button
        icon="stethoscope"
        why={may.why ?? (over ? "It has ended." : undefined)}
        busy={recover.busy}
        onClick={async () => {
          const answer = await ask({ title: "Look for what is missing?", body: "Where something should be under way and is not, it is taken up. Workers do that by themselves, once a minute.", confirm: "Recover" });
          if (answer) await recover.run(answer.reason);
        }}
      >
        Recover
      </Button>
      <Button
        look="danger"
        why={may.why ?? (over ? "It has ended." : undefined)}
        busy={cancel.busy}
        onClick={async () => {
          const answer = await ask({ title: "Cancel this workflow?", body: "What has not begun will not, and what is under way counts no more. It cannot be retried afterwards, only forked.", confirm: "Cancel the workflow", danger: true, reason: "must" });
          if (answer) await cancel.run(answer.reason);
        }}
      >
        Cancel
      </Button>
    </>
  );
}
