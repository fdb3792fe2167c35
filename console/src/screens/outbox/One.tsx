import "@/screens/outbox/outbox.css";
import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";
import { type Answer, api } from "@/api/client";
import { useMay } from "@/api/session";
import { Go } from "@/app/Go";
import { to } from "@/app/url";
import { useLive } from "@/live/live";
import { useAsk } from "@/parts/Ask";
import { Status } from "@/parts/Badge";
import { Button } from "@/parts/Button";
import { Card, Head } from "@/parts/Card";
import { Facts } from "@/parts/Facts";
import { Json } from "@/parts/Json";
import { span } from "@/parts/span";
import { Loaded } from "@/parts/States";
import { Text } from "@/parts/Text";
import { Time } from "@/parts/Time";
import { duration } from "@/parts/text";
import { toneOf } from "@/parts/tones";
import { useAct } from "@/parts/useAct";

type Shown = Answer<"/api/v1/outbox/{id}">;
type Revealed = Answer<"/api/v1/outbox/{id}/reveal", "post">["entry"];

export function One() {
  const { id } = useParams({ strict: false }) as { id: string };
  const entry = useQuery({ queryKey: ["outbox", id], queryFn: ({ signal }) => api.get("/api/v1/outbox/{id}", { path: { id }, signal }) });
  useLive(["outbox", "event"], [["outbox", id]]);
  return <Loaded query={entry}>{(found) => <Entry key={id} entry={found} />}</Loaded>;
}

function Entry({ entry }: { entry: Shown }) {
  const [revealed, setRevealed] = useState<Revealed>();
  const seen = revealed ?? entry;
  return (
    <>
      <Head
        title={
          <>
            <Text value={entry.operation} /> to <Text value={entry.resolver} />
          </>
        }
        back={<Go to={to("outbox")}>Outbox</Go>}
        badge={<Status state={entry.status} />}
        actions={<Actions entry={entry} reveal={setRevealed} isRevealed={revealed !== undefined} />}
      />
      <div className="columns">
        <div className="stack">
          <Card title="The call">
            <Facts facts={factsOf(entry)} />
          </Card>
          {entry.payload !== null && (
            <Card title={revealed ? "Payload" : "Payload, masked"}>
              <Json value={seen.payload} label="Payload" />
            </Card>
          )}
          {seen.corrections.length > 0 && (
            <Card title="Corrections">
              <Json value={seen.corrections} label="Corrections" />
            </Card>
          )}
          {entry.result !== null && (
            <Card title={revealed ? "Result" : "Result, masked"}>
              <Json value={seen.result} label="Result" />
            </Card>
          )}
          {entry.headers && (
            <Card title="Headers">
              <Json value={seen.headers} label="Headers" open={1} />
            </Card>
          )}
        </div>
        <div className="stack">
          <Card title="Attempts">
            <Line entry={entry} />
          </Card>
          <Card title="Audit trail" actions={<Go to={to("audit", null, { entry: entry.entry_id })}>All events</Go>}>
            {entry.events.length ? (
              <ul className="outbox-line">
                {entry.events.map((event) => (
                  <Moment key={event.event_id} at={event.occurred_at}>
                    <Text value={event.says} />
                  </Moment>
                ))}
              </ul>
            ) : (
              <p className="muted">No event of it yet: outcomes are written with the call that they come from.</p>
            )}
          </Card>
        </div>
      </div>
    </>
  );
}

function Actions({ entry, reveal, isRevealed }: { entry: Shown; reveal: (entry: Revealed) => void; isRevealed: boolean }) {
  const ask = useAsk();
  const may = useMay("outbox:operate");
  const mayReveal = useMay("outbox:reveal");
  const path = { id: entry.entry_id };
  const changes = [["outbox"]];
  const requeue = useAct((reason: string) => api.post("/api/v1/outbox/{id}/requeue", { path, body: { reason } }), { says: "Back in its queue", changes });
  const cancel = useAct((reason: string) => api.post("/api/v1/outbox/{id}/cancel", { path, body: { reason } }), { says: "Given up", changes });
  const verify = useAct((reason: string) => api.post("/api/v1/outbox/{id}/verify", { path, body: { reason } }), { says: "A worker asks the target again", changes });
  const open = useAct((reason: string) => api.post("/api/v1/outbox/{id}/reveal", { path, body: { reason } }));
  const bars = (act: string) => may.why ?? (entry.moves.find((move) => move.act === act)?.reason || undefined);
  return (
    <>
      <Button
        icon="replay"
        look="primary"
        why={bars("requeue")}
        busy={requeue.busy}
        onClick={async () => {
          const answer = await ask({ title: "Requeue this entry?", body: "It goes back to its queue with a new budget of attempts, under the same idempotency key. A worker calls it as soon as it can.", confirm: "Requeue", reason: "may" });
          if (answer) await requeue.run(answer.reason);
        }}
      >
        Requeue
      </Button>
      {entry.verified !== null && (
        <Button
          icon="check"
          why={bars("verify")}
          busy={verify.busy}
          onClick={async () => {
            const answer = await ask({ title: "Ask the target again?", body: "A worker asks the target whether the call has really happened, with a new budget of questions. Nothing is called again.", confirm: "Ask again", reason: "may" });
            if (answer) await verify.run(answer.reason);
          }}
        >
          Verify again
        </Button>
      )}
      <Button
        icon="close"
        look="danger"
        why={bars("cancel")}
        busy={cancel.busy}
        onClick={async () => {
          const answer = await ask({
            title: "Give up this call?",
            body: "Nobody calls it any more. It can be requeued later, unless its payload is sensitive: that is scrubbed now, for good. A saga that it belongs to learns that the step was given up.",
            confirm: "Give up",
            danger: true,
            reason: "must",
          });
          if (answer) await cancel.run(answer.reason);
        }}
      >
        Give up
      </Button>
      <Button
        icon="eye"
        why={isRevealed ? "It is shown already." : mayReveal.why}
        busy={open.busy}
        onClick={async () => {
          const answer = await ask({ title: "Reveal the payload?", body: "Payload, result and headers are shown as they are stored. That you looked, and why, is in the audit trail.", confirm: "Reveal", reason: "must" });
          const found = answer && (await open.run(answer.reason));
          if (found) reveal(found.entry);
        }}
      >
        Reveal
      </Button>
    </>
  );
}

function factsOf(entry: Shown): readonly (readonly [string, ReactNode])[] {
  const isCalled = entry.status === "in_flight";
  return [
    ["Id", <Text key="id" value={entry.entry_id} mono />],
    ["Error", entry.last_error],
    ["Subject", <Go key="subject" to={to("outbox", null, { subject_id: entry.subject_id })}>{<Text value={entry.subject_id} />}</Go>],
    ["Reference", <Text key="ref" value={`${String(entry.ref.kind)} ${String(entry.ref.value)}`} />],
    ["Queue", entry.queue],
    ["Order key", entry.ordering_key],
    ["Dedupe key", entry.dedupe_key],
    ["Saga", entry.saga_id && <Go key="saga" to={to("sagas", entry.saga_id)}>{`${entry.step ?? "step"} (${entry.direction ?? "forward"})`}</Go>],
    ["Waits for", entry.depends_on && <Go key="depends" to={to("outbox", entry.depends_on)}>{entry.depends_on}</Go>],
    ["Tries", entry.attempts],
    ["Put off", entry.parks ? `${entry.parks} times` : null],
    ["Held by", entry.claimed_by],
    [isCalled ? "Held until" : "Next try", entry.next_attempt_at && <Time key="next" at={entry.next_attempt_at} />],
    ["Verification", entry.verified && <Status key="verified" state={entry.verified} />],
    ["Known here", entry.known ? null : "No: values are hidden, and nothing can be done. Serve its program: holdfast serve --app module:hold"],
  ];
}

/** What happened to it, from when it was written to what comes next. */
function Line({ entry }: { entry: Shown }) {
  const isOver = entry.status === "succeeded" || entry.status === "abandoned";
  return (
    <ol className="outbox-line">
      <Moment at={entry.enqueued_at}>Written, with the program's own rows</Moment>
      {entry.history.map((made) => (
        <Moment key={`${made.number} ${made.finished_at}`} at={made.finished_at} tone={toneOf(made.outcome)}>
          <strong>Call {made.number}</strong> <Status state={made.outcome} /> {made.error && <Text value={made.error} most={120} />}
          {made.started_at && <span className="muted">took {duration(span(made.started_at, made.finished_at))}</span>}
        </Moment>
      ))}
      {entry.status === "succeeded" && !entry.history.some((made) => made.outcome === "succeeded") && (
        <Moment at={entry.last_attempt_at} tone="good">
          Called, and succeeded
        </Moment>
      )}
      {entry.status === "abandoned" && !entry.history.some((made) => made.outcome === "abandoned") && (
        <Moment tone="bad">
          Given up: <Text value={entry.last_error} />
        </Moment>
      )}
      {!isOver && (
        <Moment at={entry.next_attempt_at} tone="next">
          {entry.status === "in_flight" ? (
            <>
              Being called by <Text value={entry.claimed_by} most={80} />; its lease ends
            </>
          ) : entry.next_attempt_at ? (
            "Next call, at the earliest"
          ) : (
            "Called as soon as a worker has room"
          )}
        </Moment>
      )}
    </ol>
  );
}

function Moment({ at, tone = "quiet", children }: { at?: string | null; tone?: string; children: ReactNode }) {
  return (
    <li className={`outbox-${tone}`}>
      <span className="outbox-line-words">{children}</span>
      {at && (
        <span className="muted">
          <Time at={at} absolute />
        </span>
      )}
    </li>
  );
}
