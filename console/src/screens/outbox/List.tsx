import "@/screens/outbox/outbox.css";
import { useQuery } from "@tanstack/react-query";
import { type Answer, api } from "@/api/client";
import { to, useUrl } from "@/app/url";
import { useLive } from "@/live/live";
import { Status } from "@/parts/Badge";
import { Card, Figure, Head } from "@/parts/Card";
import { counted, Filters } from "@/parts/Filters";
import { Pager } from "@/parts/Pager";
import { Empty, Loaded } from "@/parts/States";
import { type Column, Table } from "@/parts/Table";
import { Text } from "@/parts/Text";
import { Time } from "@/parts/Time";
import { short } from "@/parts/text";
import { Prune } from "@/screens/outbox/Prune";
import { Queues } from "@/screens/outbox/Queues";
import { RequeueMany } from "@/screens/outbox/RequeueMany";

type Entry = Answer<"/api/v1/outbox">["items"][number];
export type OutboxFacets = Answer<"/api/v1/outbox/facets">;

const COLUMNS: readonly Column<Entry>[] = [
  { title: "Operation", cell: (entry) => <Text value={entry.operation} most={60} />, width: "16%" },
  { title: "Status", cell: (entry) => <Status state={entry.status} />, width: "120px" },
  { title: "Target", cell: (entry) => <Text value={entry.resolver} most={60} />, optional: true },
  { title: "Subject", cell: (entry) => <Text value={entry.subject_id} most={60} />, optional: true },
  { title: "Error", cell: (entry) => <Text value={entry.last_error} most={80} /> },
  { title: "Tries", cell: (entry) => entry.attempts, width: "60px", right: true, optional: true },
  { title: "Due", cell: (entry) => <Due entry={entry} />, width: "100px", right: true, optional: true },
  { title: "Since", cell: (entry) => <Time at={entry.enqueued_at} />, width: "110px", right: true },
];

const VERIFICATIONS = [
  { value: "failed", label: "denied by the target" },
  { value: "given_up", label: "asked about in vain" },
  { value: "pending" },
  { value: "confirmed" },
];

export function List() {
  const url = useUrl();
  const where = {
    operation: url.get("operation"), target: url.get("target"), subject_id: url.get("subject_id"), key: url.get("key"),
    queue: url.get("queue"), error: url.get("error"),
  }; // prettier-ignore
  const query = {
    ...where, status: url.get("status") as Entry["status"] | undefined, saga_id: url.get("saga_id"),
    verification: url.get("verification") as "failed" | undefined, after: url.get("after"), limit: 50,
  }; // prettier-ignore
  const entries = useQuery({
    queryKey: ["outbox", "list", query],
    queryFn: ({ signal }) => api.get("/api/v1/outbox", { query, signal }),
    placeholderData: (before) => before,
  });
  const facets = useQuery({ queryKey: ["outbox", "facets"], queryFn: ({ signal }) => api.get("/api/v1/outbox/facets", { signal }) });
  useLive(["outbox", "event"], [["outbox"]]);
  const isFiltered = Object.entries(query).some(([name, value]) => value !== undefined && name !== "limit" && name !== "after");
  const named = (values: readonly string[] | undefined) => (values ?? []).map((value) => ({ value }));
  return (
    <>
      <Head
        title="Outbox"
        actions={
          <>
            <RequeueMany where={where} />
            <Prune />
          </>
        }
      >
        Calls that must happen: written with the program's own rows, made by its workers until they succeed or are given up.
      </Head>
      <div className="stack">
        {facets.data && <Figures facets={facets.data} />}
        <Filters
          fields={[
            { name: "status", label: "Status", options: counted(facets.data?.by_status) },
            { name: "operation", label: "Operation", options: named(facets.data?.operations), free: true },
            { name: "target", label: "Target", options: named(facets.data?.targets) },
            { name: "subject_id", label: "Subject", example: "whom or what it is about" },
            { name: "key", label: "Key", example: "the key in whose order they are called" },
            { name: "queue", label: "Queue", options: (facets.data?.queues ?? []).map((one) => ({ value: one.queue, count: one.waiting })) },
            { name: "error", label: "Error", options: named(facets.data?.errors), example: "ConnectionError" },
            { name: "verification", label: "Verification", options: VERIFICATIONS },
            { name: "saga_id", label: "Saga", example: "the id of a saga" },
          ]}
        />
        <Card flush>
          <Loaded query={entries}>
            {(page) => (
              <Table
                label="Entries"
                columns={COLUMNS}
                rows={page.items}
                id={(entry) => entry.entry_id}
                href={(entry) => to("outbox", entry.entry_id)}
                stale={entries.isPlaceholderData}
                empty={page.next ? <Further /> : isFiltered ? <Empty title="No entry fits">Remove a filter to see more.</Empty> : <Nothing />}
              />
            )}
          </Loaded>
        </Card>
        <Pager next={entries.data?.next} shown={entries.data?.items.length ?? 0} />
        {facets.data && <Queues queues={facets.data.queues} />}
      </div>
    </>
  );
}

function Figures({ facets }: { facets: OutboxFacets }) {
  const count = (status: string) => `${short(facets.by_status[status] ?? 0)}${facets.at_least.includes(status) ? "+" : ""}`;
  const bad = facets.by_status.abandoned ?? 0;
  return (
    <div className="figures">
      <Figure label="Waiting" value={count("pending")} note="pending" />
      <Figure label="Being called" value={count("in_flight")} note="in flight" />
      <Figure label="To be retried" value={count("failed")} note="failed" {...((facets.by_status.failed ?? 0) > 0 && { tone: "warn" as const })} />
      <Figure label="Put off" value={count("scheduled")} note="scheduled" />
      <Figure label="Given up" value={count("abandoned")} note="abandoned" {...(bad > 0 && { tone: "bad" as const })} />
      <Figure label="Done" value={count("succeeded")} note="succeeded" />
    </div>
  );
}

function Due({ entry }: { entry: Entry }) {
  return entry.status === "in_flight" || entry.next_attempt_at === null ? <span className="muted">–</span> : <Time at={entry.next_attempt_at} />;
}

function Nothing() {
  return (
    <Empty title="Nothing in the outbox" icon="send">
      Entries appear when the program calls <code>hold.outbox.put(session, "operation", payload, target=…)</code> in a transaction of its own, and a worker (
      <code>holdfast worker --app module:hold</code>) makes the calls.
    </Empty>
  );
}

/** Nothing on this page, though the search has not come to its end. */
export function Further() {
  return (
    <Empty title="Nothing so far" icon="search">
      What was looked through holds none. Press Next to search further back; by subject, or by status, it is found at once.
    </Empty>
  );
}
