import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { useState } from "react";
import { type Answer, api } from "@/api/client";
import { useMay } from "@/api/session";
import { Go, useGo } from "@/app/Go";
import { to } from "@/app/url";
import { useLive } from "@/live/live";
import { useAsk } from "@/parts/Ask";
import { Status, Tag } from "@/parts/Badge";
import { Button } from "@/parts/Button";
import { Card, Head } from "@/parts/Card";
import { Copy } from "@/parts/Copy";
import { Facts } from "@/parts/Facts";
import { Json } from "@/parts/Json";
import { span } from "@/parts/span";
import { Empty, Loaded } from "@/parts/States";
import { type Column, Table } from "@/parts/Table";
import { Text } from "@/parts/Text";
import { duration, plural } from "@/parts/text";
import { Time } from "@/parts/Time";
import { useAct } from "@/parts/useAct";
import type { Letter } from "@/screens/letters/Letters";

type Shown = Answer<"/api/v1/letters/{id}">;
type Attempt = Shown["attempts"][number];
type Word = "resolve" | "discard" | "review" | "reopen";

const PAYLOADS = [
  ["request_data", "What was asked"],
  ["response_data", "What was answered"],
  ["snapshot_data", "Snapshot"],
  ["entity_refs", "What it is about"],
  ["metadata", "Metadata"],
] as const;

const WORDS: Readonly<Record<Word, { readonly title: string; readonly body: string; readonly confirm: string; readonly status: string; readonly danger?: boolean; readonly reason?: "may" }>> = {
  resolve: { title: "Resolve this letter?", body: "It is marked as resolved: somebody has seen to it. Nothing is called.", confirm: "Resolve", status: "resolved" },
  discard: { title: "Discard this letter?", body: "It is marked as rejected: nobody will replay it. Nothing is deleted.", confirm: "Discard", status: "rejected", danger: true },
  review: { title: "Look into it?", body: "It is marked as being reviewed: no worker replays it until somebody resolves it, discards it or puts it back.", confirm: "Take it", status: "reviewing", reason: "may" },
  reopen: { title: "Put it back?", body: "It becomes pending: workers replay it when its domain drains.", confirm: "Put back", status: "pending" },
};

const ATTEMPTS: readonly Column<Attempt>[] = [
  { title: "#", cell: (one) => one.number, width: "44px", right: true, label: "Number" },
  { title: "Begun", cell: (one) => <Time at={one.started_at} />, width: "110px" },
  { title: "Took", cell: (one) => (one.finished_at === null ? "runs" : duration(span(one.started_at, one.finished_at))), width: "80px", right: true, optional: true },
  { title: "Outcome", cell: (one) => <Status state={one.outcome ?? "running"} />, width: "120px" },
  { title: "By", cell: (one) => <Text value={one.trigger.replaceAll("_", " ")} most={40} />, width: "150px", optional: true },
  { title: "What it says", cell: (one) => <Text value={[one.error_type, one.note].filter(Boolean).join(": ")} most={240} /> },
];

export function One() {
  const { id } = useParams({ strict: false }) as { id: string };
  const letter = useQuery({ queryKey: ["letters", "one", id], queryFn: ({ signal }) => api.get("/api/v1/letters/{id}", { path: { id }, signal }) });
  useLive(["letters"], [["letters", "one", id]]);
  return <Loaded query={letter}>{(found) => <Found key={found.id} letter={found} />}</Loaded>;
}

function Found({ letter }: { letter: Shown }) {
  const [revealed, setRevealed] = useState<Letter>();
  const shown = revealed ?? letter;
  const about = [letter.entity_type, letter.entity_id].filter(Boolean).join(" ");
  return (
    <>
      <Head title={<Text value={letter.domain} />} back={<Go to={to("letters")}>Letters</Go>} badge={<Status state={letter.status} />} actions={<Actions letter={letter} />} />
      <div className="stack">
        <div className="columns">
          <Card title="What failed">
            <p className="letters-message">
              <Text value={letter.error_message || letter.failure_type} />
            </p>
            <Facts
              facts={[
                ["Failure type", letter.failure_type],
                ["Error code", letter.error_code],
                ["Hint", letter.next_action_hint],
                ["Recommended", letter.recommended_action],
                ["About", about && <Go to={to("letters", null, { entity_type: letter.entity_type, entity_id: letter.entity_id })}><Text value={about} /></Go>],
                ["User", letter.user_id],
                ["Seen", letter.occurrences > 1 ? plural(letter.occurrences, "time") : null],
                ["Failed", <Time key="failed" at={letter.created_at} absolute />],
                ["Expires", letter.expires_at && <Time key="expires" at={letter.expires_at} />],
                ["Id", <span key="id" className="row"><Text value={letter.id} mono /> <Copy text={letter.id} label="Copy the id" /></span>],
              ]}
            />
          </Card>
          <Card title="If it is replayed now">
            <Preview letter={letter} />
            <Facts
              facts={[
                ["Attempts", `${letter.retry_count} of ${letter.max_retries} used`],
                ["Not before", isAhead(letter.next_attempt_at) ? <Time key="next" at={letter.next_attempt_at} /> : null],
                ["Last attempt", letter.last_retry_at && <Time key="last" at={letter.last_retry_at} />],
                ["Last sign of life", letter.status === "replaying" && letter.heartbeat_at ? <Time key="beat" at={letter.heartbeat_at} /> : null],
                ["Resolved", letter.resolved_at && <Time key="resolved" at={letter.resolved_at} absolute />],
                ["How", letter.resolution_type.replaceAll("_", " ")],
                ["By", letter.resolved_by_id],
                ["Note", letter.resolution_note],
              ]}
            />
          </Card>
        </div>
        <Card title="Attempts to replay it" flush>
          <Table
            label="Attempts"
            columns={ATTEMPTS}
            rows={letter.attempts}
            id={(one) => `${one.number}-${one.started_at}`}
            empty={<Empty title="Nobody has tried yet" icon="replay">Workers try when the domain's breaker closes, or when somebody asks for it.</Empty>}
          />
        </Card>
        {PAYLOADS.filter(([name]) => Object.keys(shown[name]).length > 0).map(([name, title], at) => (
          <Card key={name} title={title} actions={at === 0 ? <Reveal letter={letter} revealed={revealed} set={setRevealed} /> : undefined}>
            {at === 0 && !revealed && <p className="letters-masked">What sounds secret is masked.</p>}
            <Json value={shown[name]} label={title} />
          </Card>
        ))}
      </div>
    </>
  );
}

function Preview({ letter }: { letter: Shown }) {
  const { possible, here, reason, way, retry_after } = letter.replay;
  return (
    <div className="letters-way">
      <Status state={possible ? (way === "trial" ? "on trial" : "may go") : "not now"} tone={possible ? (way === "trial" ? "warn" : "good") : "bad"} />
      <p>
        {reason && <Text value={reason} />}
        {reason && ". "}
        {retry_after !== null && `Worth another try in ${duration(retry_after)}. `}
        {here ? "This server would call it." : "This server does not know how to replay it: it is handed to a worker of the program."}{" "}
        {way !== "clear" && <Go to={to("breakers", letter.domain)}>See the breaker</Go>}
      </p>
    </div>
  );
}

function Actions({ letter }: { letter: Shown }) {
  const id = letter.id;
  const go = useGo();
  const ask = useAsk();
  const may = useMay("letters:operate");
  const mayDelete = useMay("letters:admin");
  const replay = useAct(({ reason, force }: { reason: string; force: boolean }) => api.post("/api/v1/letters/{id}/replay", { path: { id }, body: { reason, force } }), {
    says: (answer) => ("outcome" in answer ? `${answer.outcome}${answer.reason ? `: ${answer.reason}` : ""}` : "Handed to the workers"),
    changes: [["letters"], ["bulk"]],
  });
  const word = useAct(({ verb, reason }: { verb: Word; reason: string }) => api.post(`/api/v1/letters/{id}/${verb}`, { path: { id }, body: { reason } }), {
    says: (answer) => `It is ${answer.status} now`,
    changes: [["letters"]],
  });
  const remove = useAct((reason: string) => api.post("/api/v1/letters/{id}/delete", { path: { id }, body: { reason } }), { says: "Deleted", changes: [["letters", "list"], ["letters", "facets"]] });

  const isExhausted = letter.status === "requires_review" || (letter.status === "pending" && letter.retry_count >= letter.max_retries);
  const again = async () => {
    const answer = await ask({
      title: isExhausted ? "Replay with a new budget of attempts?" : "Replay this letter?",
      body: letter.replay.here
        ? "It is called again now, by this server, with its own idempotency key."
        : "A bulk operation of one is started, and a worker of the program carries it out.",
      confirm: "Replay",
      reason: "may",
    });
    if (!answer) return;
    const came = await replay.run({ reason: answer.reason, force: isExhausted });
    if (came && "state" in came) go(to("bulk", came.id));
  };
  const say = (verb: Word) => async () => {
    const { title, body, confirm, danger, reason } = WORDS[verb];
    const answer = await ask({ title, body, confirm, danger: danger ?? false, reason: reason ?? "must" });
    if (answer) await word.run({ verb, reason: answer.reason });
  };
  const already = (verb: Word) => (WORDS[verb].status === letter.status ? `It is ${letter.status} already.` : undefined);
  const barred = letter.replay.possible ? undefined : letter.replay.reason;
  return (
    <>
      <Button icon="replay" look="primary" why={may.why ?? barred} busy={replay.busy} onClick={again}>
        {isExhausted ? "Replay anew" : "Replay"}
      </Button>
      <Button icon="check" why={may.why ?? already("resolve")} busy={word.busy} onClick={say("resolve")}>
        Resolve
      </Button>
      <Button why={may.why ?? already("discard")} busy={word.busy} onClick={say("discard")}>
        Discard
      </Button>
      {letter.status === "pending" || letter.status === "replaying" ? (
        <Button why={may.why ?? already("review")} busy={word.busy} onClick={say("review")}>
          Review
        </Button>
      ) : (
        <Button why={may.why} busy={word.busy} onClick={say("reopen")}>
          Put back
        </Button>
      )}
      <Button
        icon="bin"
        look="danger"
        aria-label="Delete"
        why={mayDelete.why ?? (letter.status === "replaying" ? "It is being replayed." : undefined)}
        busy={remove.busy}
        onClick={async () => {
          const answer = await ask({ title: "Delete this letter for good?", body: "It is gone afterwards, with its payload and its attempts. To keep it readable, discard it instead.", confirm: "Delete", danger: true, reason: "must" });
          if (answer && (await remove.run(answer.reason))) go(to("letters"));
        }}
      />
    </>
  );
}

function Reveal({ letter, revealed, set }: { letter: Shown; revealed: Letter | undefined; set: (letter: Letter | undefined) => void }) {
  const may = useMay("letters:reveal");
  const ask = useAsk();
  const reveal = useAct((reason: string) => api.post("/api/v1/letters/{id}/reveal", { path: { id: letter.id }, body: { reason } }), {});
  if (revealed)
    return (
      <>
        <Tag tone="warn">revealed</Tag>
        <Button small look="plain" onClick={() => set(undefined)}>
          Mask again
        </Button>
      </>
    );
  return (
    <Button
      small
      icon="eye"
      why={may.why}
      busy={reveal.busy}
      onClick={async () => {
        const answer = await ask({ title: "Reveal what is masked?", body: "You see this letter as it was kept. That you have looked, and why, is in the audit trail.", confirm: "Reveal", reason: "must" });
        const found = answer && (await reveal.run(answer.reason));
        if (found) set(found.letter);
      }}
    >
      Reveal
    </Button>
  );
}

function isAhead(at: string | null): at is string {
  return at !== null && Date.parse(at) > Date.now();
}
