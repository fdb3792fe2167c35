import { api } from "@/api/client";
import { useMay } from "@/api/session";
import { useAsk } from "@/parts/Ask";
import { Status } from "@/parts/Badge";
import { Button } from "@/parts/Button";
import { Card } from "@/parts/Card";
import { Text } from "@/parts/Text";
import { Time } from "@/parts/Time";
import { duration, plural } from "@/parts/text";
import { useAct } from "@/parts/useAct";
import type { OutboxFacets } from "@/screens/outbox/List";

type Queue = OutboxFacets["queues"][number];

export function Queues({ queues }: { queues: readonly Queue[] }) {
  return (
    <Card title="Queues">
      <ul className="outbox-queues">
        {queues.map((queue) => (
          <OneQueue key={queue.queue} queue={queue} />
        ))}
      </ul>
    </Card>
  );
}

function OneQueue({ queue }: { queue: Queue }) {
  const ask = useAsk();
  const may = useMay("outbox:operate");
  const changes = [["outbox"]];
  const pause = useAct((reason: string) => api.post("/api/v1/outbox/queues/pause", { body: { queue: queue.queue, reason } }), { says: `Queue ${queue.queue} is paused`, changes });
  const resume = useAct((reason: string) => api.post("/api/v1/outbox/queues/resume", { body: { queue: queue.queue, reason } }), { says: `Queue ${queue.queue} is resumed`, changes });
  return (
    <li className="outbox-queue">
      <span>
        <Text value={queue.queue} most={80} />
      </span>
      <Status state={queue.paused ? "paused" : "active"} />
      <span className="muted num">
        {plural(queue.waiting, "entry", "entries")} not ended{queue.lag_s >= 1 ? `, the oldest due since ${duration(queue.lag_s)}` : ""}
      </span>
      {queue.paused && (
        <span className="muted">
          <Time at={queue.paused_at} /> by <Text value={queue.paused_by} most={60} />: <Text value={queue.paused_reason} most={120} />
        </span>
      )}
      {queue.paused ? (
        <Button
          small
          icon="play"
          why={may.why}
          busy={resume.busy}
          aria-label={`Resume queue ${queue.queue}`}
          onClick={async () => {
            const answer = await ask({ title: `Resume queue ${queue.queue}?`, body: "Workers on all hosts call its entries again, at once.", confirm: "Resume", reason: "may" });
            if (answer) await resume.run(answer.reason);
          }}
        >
          Resume
        </Button>
      ) : (
        <Button
          small
          icon="pause"
          why={may.why}
          busy={pause.busy}
          aria-label={`Pause queue ${queue.queue}`}
          onClick={async () => {
            const answer = await ask({
              title: `Pause queue ${queue.queue}?`,
              body: "No worker on any host calls its entries until it is resumed. It still takes new ones, and calls that run already go on.",
              confirm: "Pause",
              reason: "must",
            });
            if (answer) await pause.run(answer.reason);
          }}
        >
          Pause
        </Button>
      )}
    </li>
  );
}
