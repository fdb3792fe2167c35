import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { type Answer, api } from "@/api/client";
import { useMay } from "@/api/session";
import { useAsk } from "@/parts/Ask";
import { Button } from "@/parts/Button";
import { Meter } from "@/parts/Spark";
import { Text } from "@/parts/Text";
import { useSay } from "@/parts/Toasts";
import { plural, whole } from "@/parts/text";

type Preview = Answer<"/api/v1/outbox/requeue/preview">;
type Where = Readonly<Record<"operation" | "target" | "subject_id" | "key" | "queue" | "error", string | undefined>>;

/** Hand back all abandoned entries that the filter matches: counted, confirmed, then a part at a time. */
export function RequeueMany({ where }: { where: Where }) {
  const may = useMay("outbox:operate");
  const ask = useAsk();
  const say = useSay();
  const queries = useQueryClient();
  const [progress, setProgress] = useState<{ seen: number; of: number }>();

  const requeue = async () => {
    try {
      const preview = await api.get("/api/v1/outbox/requeue/preview", { query: where });
      if (!preview.matched) return say.done("No abandoned entry fits the filter");
      const strange = preview.calls.find((call) => !call.known);
      if (strange) return say.failed(new Error(`Nobody here knows operation ${strange.operation}. Serve its program: holdfast serve --app module:hold`));
      const answer = await ask({
        title: `Requeue ${plural(preview.matched, "abandoned entry", "abandoned entries")}?`,
        body: <Calls preview={preview} />,
        confirm: `Requeue ${whole(preview.matched)}`,
        reason: "must",
        count: preview.matched,
      });
      if (answer) await work(preview.matched, answer.reason);
    } catch (error) {
      say.failed(error);
    }
  };
  const work = async (expected: number, reason: string) => {
    let [done, refused, after] = [0, 0, undefined as string | undefined];
    setProgress({ seen: 0, of: expected });
    try {
      do {
        const part = await api.post("/api/v1/outbox/requeue", { body: { ...where, expected, reason, ...(after && { after }) } });
        done += part.requeued;
        refused += part.refused.length;
        after = part.next ?? undefined;
        setProgress({ seen: done + refused, of: expected });
      } while (after);
      const left = refused ? `; ${plural(refused, "entry", "entries")} cannot be: what the call needs is gone` : "";
      say.done(`Requeued ${plural(done, "entry", "entries")}${left}`);
    } finally {
      setProgress(undefined);
      await queries.invalidateQueries({ queryKey: ["outbox"] });
    }
  };
  return (
    <>
      {progress && <Meter value={progress.seen} most={progress.of} label="Requeued" />}
      <Button icon="replay" why={may.why} busy={progress !== undefined} onClick={() => void requeue()}>
        Requeue abandoned…
      </Button>
    </>
  );
}

function Calls({ preview }: { preview: Preview }) {
  return (
    <>
      <p>They go back to their queues with new budgets of attempts, and workers call them as soon as they can:</p>
      <ul>
        {preview.calls.slice(0, 12).map((call) => (
          <li key={`${call.operation} ${call.target}`} className="num">
            {whole(call.entries)} × <Text value={call.operation} most={60} /> to <Text value={call.target} most={60} />
          </li>
        ))}
        {preview.calls.length > 12 && <li>and {preview.calls.length - 12} more kinds of calls</li>}
      </ul>
    </>
  );
}
