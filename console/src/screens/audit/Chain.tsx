import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { type Answer, api } from "@/api/client";
import { useMay } from "@/api/session";
import { Go } from "@/app/Go";
import { to, useUrl } from "@/app/url";
import { useLive } from "@/live/live";
import { useAsk } from "@/parts/Ask";
import { Status } from "@/parts/Badge";
import { Button } from "@/parts/Button";
import { Card } from "@/parts/Card";
import { Copy } from "@/parts/Copy";
import { Pager } from "@/parts/Pager";
import { Meter } from "@/parts/Spark";
import { Empty, Failure, Loaded } from "@/parts/States";
import { type Column, Table } from "@/parts/Table";
import { Text } from "@/parts/Text";
import { Time } from "@/parts/Time";
import { plural, whole } from "@/parts/text";
import { useAct } from "@/parts/useAct";

type TrailStatus = Answer<"/api/v1/audit/status">;
type Verification = Answer<"/api/v1/audit/verify/{id}">;
type Stream = Answer<"/api/v1/audit/streams">["items"][number];
type Taken = Answer<"/api/v1/audit/checkpoints", "post">;

const POLL_MS = 700;

/** Until when the trail is known to be in order, and by whom; and verifying it. */
export function Chain() {
  const url = useUrl();
  const queries = useQueryClient();
  const ask = useAsk();
  const may = useMay("audit:operate");
  const status = useQuery({ queryKey: ["audit", "status"], queryFn: ({ signal }) => api.get("/api/v1/audit/status", { signal }) });
  useLive([], [["audit", "status"]]);
  const id = url.get("verification") ?? status.data?.running ?? undefined;
  const job = useQuery({
    queryKey: ["audit", "verification", id],
    queryFn: ({ signal }) => api.get("/api/v1/audit/verify/{id}", { path: { id: id ?? "" }, signal }),
    enabled: id !== undefined,
    retry: false,
    refetchInterval: (query) => (query.state.data?.state === "running" ? POLL_MS : false),
  });
  const isRunning = job.data?.state === "running";
  useEffect(() => {
    if (job.data && job.data.state !== "running") void queries.invalidateQueries({ queryKey: ["audit", "status"] });
  }, [job.data, queries]);
  const verify = useAct((reason: string) => api.post("/api/v1/audit/verify", { body: { reason } }));
  return (
    <Card
      title="The chain"
      actions={
        <Button
          icon="check"
          look="primary"
          small
          why={may.why}
          busy={verify.busy || isRunning}
          onClick={async () => {
            const answer = await ask({ title: "Verify the whole trail?", body: "Every event is read and its hash computed again, in the background. Appending goes on meanwhile. What is found is written into the trail.", confirm: "Verify", reason: "may" });
            const begun = answer && (await verify.run(answer.reason));
            if (begun) url.set({ verification: begun.id, after: url.get("after") }, { replace: true });
          }}
        >
          Verify
        </Button>
      }
    >
      <div className="stack">
        <Loaded query={status} lines={2}>
          {(found) => <Known status={found} />}
        </Loaded>
        {status.data && !status.data.has_the_key && (
          <p className="audit-broken" role="alert">
            The trail is written with another key than this server has. Whatever is done here would break its chain: set HOLDFAST_AUDIT_KEY, or serve the program that has the key.
          </p>
        )}
        {job.data && <Progress job={job.data} />}
        {job.isError && url.get("verification") && <Failure compact error={job.error} />}
      </div>
    </Card>
  );
}

function Known({ status }: { status: TrailStatus }) {
  const last = status.last_verification;
  return (
    <div className="audit-status">
      {last ? <Status state={last.verified ? "verified" : "broken"} tone={last.verified ? "good" : "bad"} /> : <Status state="never verified" tone="warn" />}
      <span className="grow">
        {last ? (
          <>
            {last.verified ? `In order: ${plural(last.events, "event")} in ${plural(last.streams, "stream")}, until ` : `${last.broken} of ${plural(last.streams, "stream")} broken, as found `}
            <Time at={last.until} absolute /> (<Time at={last.until} />) by <Text value={last.by} most={60} />.
          </>
        ) : (
          "Nobody has verified it here yet. Verify it before you rely on it, and from time to time."
        )}{" "}
        <span className="muted">
          Now {plural(status.events, "event")};{" "}
          {status.keyed ? "signed with a key" : "without a key: whoever can write to the database could forge it"};{" "}
          {status.last_checkpoint_at ? (
            <>
              last checkpoint <Time at={status.last_checkpoint_at} />
            </>
          ) : (
            "no checkpoint yet"
          )}
          .
        </span>
      </span>
    </div>
  );
}

function Progress({ job }: { job: Verification }) {
  const url = useUrl();
  if (job.state === "running")
    return (
      <div role="status">
        <Meter value={job.events} most={Math.max(job.events_total, 1)} label="Verified" />
        <p className="muted num">
          {whole(job.events)} of about {whole(job.events_total)} events, {job.streams} of {plural(job.streams_total, "stream")}
        </p>
      </div>
    );
  if (job.state === "failed")
    return (
      <p role="status">
        <Status state="failed" /> It could not be verified: <Text value={job.error} most={300} />. Try again.
      </p>
    );
  if (job.state === "verified")
    return job.stream === null ? null : (
      <p role="status">
        <Status state="verified" tone="good" /> {plural(job.events, "event")} of stream <Text value={job.stream} most={60} /> are as they were written.
      </p>
    );
  return (
    <div className="audit-broken" role="alert">
      <p>
        <strong>{plural(job.broken.length, "stream is", "streams are")} not as written.</strong> <Go to={to("audit", null, { ...url.search, tab: "help" })}>What that means, and what to do</Go>
      </p>
      <ul className="stack">
        {job.broken.map((one) => (
          <li key={one.stream}>
            Stream <Text value={one.stream} most={60} />, after {plural(one.events, "event")} in order: <Status state={one.reason ?? "broken"} tone="bad" /> {one.meaning}.{" "}
            {one.first_broken_event_id && (
              <>
                First broken event: <Text value={one.first_broken_event_id} mono />
              </>
            )}
          </li>
        ))}
      </ul>
    </div>
  );
}

const COLUMNS: readonly Column<Stream>[] = [
  { title: "Stream", cell: (stream) => <Text value={stream.stream} most={60} /> },
  { title: "Events", cell: (stream) => <span className="num">{whole(stream.events)}</span>, width: "110px", right: true },
  { title: "Last checkpoint", cell: (stream) => (stream.checkpoint ? <Time at={stream.checkpoint.taken_at} /> : <span className="muted">none</span>), width: "140px", right: true },
  { title: "At event", cell: (stream) => <span className="num">{stream.checkpoint ? whole(stream.checkpoint.seq) : "–"}</span>, width: "100px", right: true, optional: true },
  { title: "Hash", cell: (stream) => <Text value={stream.checkpoint?.event_hash} most={20} mono />, width: "190px", optional: true },
];

/** The chains, and checkpoints of them to be kept elsewhere. */
export function Streams() {
  const url = useUrl();
  const ask = useAsk();
  const may = useMay("audit:operate");
  const query = { after: url.get("after"), limit: 100 };
  const streams = useQuery({ queryKey: ["audit", "streams", query], queryFn: ({ signal }) => api.get("/api/v1/audit/streams", { query, signal }) });
  const [taken, setTaken] = useState<Taken>();
  const take = useAct((reason: string) => api.post("/api/v1/audit/checkpoints", { body: { reason } }), {
    says: (answer) => `Took ${plural(answer.checkpoints.length, "checkpoint")}`,
    changes: [["audit"]],
  });
  return (
    <div className="stack">
      <Card
        title="Checkpoints"
        actions={
          <Button
            small
            icon="plus"
            why={may.why}
            busy={take.busy}
            onClick={async () => {
              const answer = await ask({ title: "Take a checkpoint of every stream?", body: "It notes where each stream ends now. Keep the lines where those who can change the database cannot: they expose that an end was cut off.", confirm: "Take checkpoints", reason: "may" });
              const found = answer && (await take.run(answer.reason));
              if (found) setTaken(found);
            }}
          >
            Take checkpoints
          </Button>
        }
      >
        {taken ? (
          <div className="stack">
            <div className="row spread">
              <span>
                {plural(taken.checkpoints.length, "checkpoint")}, {taken.signed ? "signed with the trail's key" : "not signed: the trail has no key"}. Keep these lines elsewhere; <code>holdfast audit verify --checkpoints FILE</code> holds the trail against them.
              </span>
              <span className="row">
                <Copy text={taken.export} label="Copy the lines" />
                <Button small icon="down" onClick={() => save(taken.export)}>
                  Save as a file
                </Button>
              </span>
            </div>
            <pre className="audit-export" tabIndex={0} aria-label="Checkpoints">
              {taken.export}
            </pre>
          </div>
        ) : (
          <p className="muted">A checkpoint says what the end of each stream was at a time. Take one regularly, and keep it outside of this database.</p>
        )}
      </Card>
      <Card flush title="Streams">
        <Loaded query={streams}>
          {(page) => (
            <Table label="Streams" columns={COLUMNS} rows={page.items} id={(stream) => stream.stream} href={(stream) => to("audit", null, { stream: stream.stream })} empty={<Empty title="No event is chained yet" icon="book" />} />
          )}
        </Loaded>
      </Card>
      <Pager next={streams.data?.next} shown={streams.data?.items.length ?? 0} />
    </div>
  );
}

function save(lines: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([lines], { type: "application/jsonl" }));
  link.download = `holdfast-checkpoints-${new Date().toISOString().slice(0, 10)}.jsonl`;
  link.click();
  URL.revokeObjectURL(link.href);
}
