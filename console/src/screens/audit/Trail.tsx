import "@/screens/audit/audit.css";
import { useQuery } from "@tanstack/react-query";
import { type Answer, api } from "@/api/client";
import { Go } from "@/app/Go";
import { to, useUrl } from "@/app/url";
import { useLive } from "@/live/live";
import { Dialog } from "@/parts/Ask";
import { Tag } from "@/parts/Badge";
import { Card, Head } from "@/parts/Card";
import { Facts } from "@/parts/Facts";
import { Filters } from "@/parts/Filters";
import { Json } from "@/parts/Json";
import { Pager } from "@/parts/Pager";
import { Empty, Loaded } from "@/parts/States";
import { type Column, Table } from "@/parts/Table";
import { Tabs } from "@/parts/Tabs";
import { Text } from "@/parts/Text";
import { Time } from "@/parts/Time";
import type { Tone } from "@/parts/tones";
import { Chain, Streams } from "@/screens/audit/Chain";

type Event = Answer<"/api/v1/audit">["items"][number];

const COLUMNS: readonly Column<Event>[] = [
  { title: "What", cell: (event) => <Text value={event.says} most={160} />, width: "46%" },
  { title: "Type", cell: (event) => <Tag tone={tone(event.event_type)}>{event.event_type.replaceAll("_", " ")}</Tag>, optional: true },
  { title: "Subject", cell: (event) => <Text value={event.subject_ref} most={60} />, optional: true },
  { title: "Place", cell: (event) => <span className="num muted">{event.stream === null ? "unchained" : `${event.stream}:${event.seq}`}</span>, width: "110px", optional: true },
  { title: "When", cell: (event) => <Time at={event.occurred_at} />, width: "110px", right: true },
];

export function Trail() {
  return (
    <>
      <Head title="Audit">Who did what, and what came of calls that must happen. Nothing here is ever changed or deleted; the chain shows whether that is so.</Head>
      <div className="stack">
        <Chain />
        <Tabs
          label="Audit"
          tabs={[
            { name: "events", title: "Events", body: () => <Events /> },
            { name: "streams", title: "Streams and checkpoints", body: () => <Streams /> },
            { name: "help", title: "What a broken chain means", body: () => <Meaning /> },
          ]}
        />
      </div>
    </>
  );
}

function Events() {
  const url = useUrl();
  const query = {
    subject: url.get("subject"), entry: url.get("entry"), type: url.all("type").length ? [...url.all("type")] : undefined, stream: url.get("stream"),
    since: instant(url.get("since")), until: instant(url.get("until")), after: url.get("after"), limit: 50,
  }; // prettier-ignore
  const events = useQuery({
    queryKey: ["audit", "list", query],
    queryFn: ({ signal }) => api.get("/api/v1/audit", { query, signal }),
    placeholderData: (before) => before,
  });
  const types = useQuery({ queryKey: ["audit-types"], queryFn: ({ signal }) => api.get("/api/v1/audit/types", { signal }), staleTime: 600_000 });
  useLive([], [["audit", "list"]]);
  const isFiltered = Object.entries(query).some(([name, value]) => value !== undefined && name !== "limit" && name !== "after");
  const open = events.data?.items.find((event) => event.event_id === url.get("event"));
  return (
    <div className="stack">
      <Filters
        fields={[
          { name: "subject", label: "Subject", example: "operator:ann", free: true },
          { name: "type", label: "Type", options: (types.data ?? []).map((value) => ({ value })), several: true },
          { name: "entry", label: "Entry", example: "the id of an entry of the outbox" },
          { name: "stream", label: "Stream" },
          { name: "since", label: "Since", example: "2026-01-31T12:00Z" },
          { name: "until", label: "Until", example: "2026-01-31T12:00Z" },
        ]}
      />
      <Card flush>
        <Loaded query={events}>
          {(page) => (
            <Table
              label="Events"
              columns={COLUMNS}
              rows={page.items}
              id={(event) => event.event_id}
              href={(event) => to("audit", null, { ...url.search, event: event.event_id })}
              stale={events.isPlaceholderData}
              empty={page.next ? <Further /> : isFiltered ? <Empty title="No event fits">Remove a filter to see more.</Empty> : <Nothing />}
            />
          )}
        </Loaded>
      </Card>
      <Pager next={events.data?.next} shown={events.data?.items.length ?? 0} />
      {open && <One event={open} close={() => url.set({ event: null, after: query.after }, { replace: true })} />}
    </div>
  );
}

function One({ event, close }: { event: Event; close: () => void }) {
  return (
    <Dialog title={event.event_type.replaceAll("_", " ")} close={close} wide>
      <p>
        <Text value={event.says} />
      </p>
      <Facts
        facts={[
          ["When", <Time key="when" at={event.occurred_at} absolute />],
          ["Subject", <Go key="subject" to={to("audit", null, { subject: event.subject_ref })}>{<Text value={event.subject_ref} />}</Go>],
          ["Entry", event.entry_id && <Go key="entry" to={to("outbox", event.entry_id)}>{event.entry_id}</Go>],
          ["Id", <Text key="id" value={event.event_id} mono />],
          ["Stream", event.stream === null ? "none: it was written without a chain" : `${event.stream}, number ${event.seq}`],
          ["Hash", event.event_hash && <Text key="hash" value={event.event_hash} mono />],
          ["Before it", event.prior_hash && <Text key="prior" value={event.prior_hash} mono />],
        ]}
      />
      <Json value={event.payload} label="Facts" />
    </Dialog>
  );
}

function Meaning() {
  return (
    <Card>
      <div className="stack audit-words">
        <p>
          Every event holds the hash of the one before it in its stream. Verifying reads a stream from its beginning and computes every hash again. If one does not fit, somebody has changed, added or removed events past Holdfast, or the database was put back to an
          older state.
        </p>
        <dl className="stack">
          <div>
            <dt>What to do</dt>
            <dd>
              Do not repair it. Keep the database as it is (a dump), note the first broken event, and compare with the checkpoints that you keep elsewhere: they say until which event the trail was in order. Then ask who had write access, and whether a
              backup was restored.
            </dd>
          </div>
          <div>
            <dt>gap</dt>
            <dd>Events are missing before the one that is named, or its number is wrong.</dd>
          </div>
          <div>
            <dt>hash, link</dt>
            <dd>The event is not what was written. If all of a stream is so, the server has another key than the program: set HOLDFAST_AUDIT_KEY.</dd>
          </div>
          <div>
            <dt>head, no head, checkpoint</dt>
            <dd>The end of the stream is not where it was: events were cut off, or a backup was restored.</dd>
          </div>
          <div>
            <dt>unhashed</dt>
            <dd>An event was written past the chain, for instance by hand.</dd>
          </div>
          <div>
            <dt>Without a key</dt>
            <dd>Whoever can write to the database can also compute hashes. With a key only a holder of the key can; with checkpoints kept elsewhere, not even they can cut the end off unseen.</dd>
          </div>
        </dl>
      </div>
    </Card>
  );
}

function Nothing() {
  return (
    <Empty title="The trail is empty" icon="book">
      Events appear when somebody acts here or on the command line, and when calls of the outbox end.
    </Empty>
  );
}

function Further() {
  return (
    <Empty title="Nothing so far" icon="search">
      What was looked through holds none. Press Next to search further back; by subject or entry it is found at once.
    </Empty>
  );
}

/** A date without an offset is one in UTC, as everywhere in Holdfast. */
function instant(text: string | undefined): string | undefined {
  if (!text) return undefined;
  const moment = new Date(/(Z|[+-]\d\d:?\d\d)$/.test(text) ? text : `${text.length === 10 ? `${text}T00:00` : text}Z`);
  return Number.isNaN(moment.getTime()) ? text : moment.toISOString();
}

function tone(type: string): Tone {
  if (type === "operator_acted") return "busy";
  if (type.endsWith("failed") || type.endsWith("broken") || type.endsWith("stuck")) return "bad";
  return type.endsWith("succeeded") || type.endsWith("verified") || type.endsWith("completed") ? "good" : "quiet";
}
