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

type Saga = Answer<"/api/v1/sagas">["items"][number];
type Facets = Answer<"/api/v1/sagas/facets">;

const COLUMNS: readonly Column<Saga>[] = [
  { title: "Definition", cell: (saga) => <Text value={saga.definition} most={60} />, width: "20%" },
  { title: "State", cell: (saga) => <Status state={saga.state} />, width: "140px" },
  { title: "At", cell: (saga) => <Text value={at(saga)} most={60} />, optional: true },
  { title: "Subject", cell: (saga) => <Text value={saga.subject_id} most={60} /> },
  { title: "Reason", cell: (saga) => <Text value={saga.reason} most={80} />, optional: true },
  { title: "Changed", cell: (saga) => <Time at={saga.changed_at} />, width: "110px", right: true, optional: true },
  { title: "Started", cell: (saga) => <Time at={saga.started_at} />, width: "110px", right: true },
];

export function List() {
  const url = useUrl();
  const query = { state: url.get("state") as Saga["state"] | undefined, definition: url.get("definition"), subject_id: url.get("subject_id"), after: url.get("after"), limit: 50 };
  const sagas = useQuery({
    queryKey: ["sagas", "list", query],
    queryFn: ({ signal }) => api.get("/api/v1/sagas", { query, signal }),
    placeholderData: (before) => before,
  });
  const facets = useQuery({ queryKey: ["sagas", "facets"], queryFn: ({ signal }) => api.get("/api/v1/sagas/facets", { signal }) });
  useLive(["outbox", "event"], [["sagas"]]);
  const isFiltered = query.state ?? query.definition ?? query.subject_id;
  return (
    <>
      <Head title="Sagas">Several calls that together either happen or are undone. One that is stuck needs somebody.</Head>
      <div className="stack">
        {facets.data && <Figures facets={facets.data} />}
        <Filters
          fields={[
            { name: "state", label: "State", options: counted(facets.data?.by_state) },
            { name: "definition", label: "Definition", options: (facets.data?.definitions ?? []).map((value) => ({ value })), free: true },
            { name: "subject_id", label: "Subject", example: "whom or what it is about" },
          ]}
        />
        <Card flush>
          <Loaded query={sagas}>
            {(page) => (
              <Table
                label="Sagas"
                columns={COLUMNS}
                rows={page.items}
                id={(saga) => saga.saga_id}
                href={(saga) => to("sagas", saga.saga_id)}
                stale={sagas.isPlaceholderData}
                empty={page.next ? <Further /> : isFiltered ? <Empty title="No saga fits">Remove a filter to see more.</Empty> : <Nothing />}
              />
            )}
          </Loaded>
        </Card>
        <Pager next={sagas.data?.next} shown={sagas.data?.items.length ?? 0} />
      </div>
    </>
  );
}

function Figures({ facets }: { facets: Facets }) {
  const count = (state: string) => `${short(facets.by_state[state] ?? 0)}${facets.at_least.includes(state) ? "+" : ""}`;
  return (
    <div className="figures">
      <Figure label="Running" value={count("running")} />
      <Figure label="Being undone" value={count("compensating")} note="compensating" />
      <Figure label="Stuck" value={count("stuck")} note="somebody has to help" {...((facets.by_state.stuck ?? 0) > 0 && { tone: "bad" as const })} />
      <Figure label="Undone" value={count("compensated")} note="compensated" />
      <Figure label="Completed" value={count("completed")} />
    </div>
  );
}

/** The last step that anything was done for. */
function at(saga: Saga): string | undefined {
  return saga.steps.filter((step) => step.state !== "waiting" && step.state !== "skipped").at(-1)?.name;
}

function Nothing() {
  return (
    <Empty title="No sagas" icon="steps">
      A saga begins with <code>hold.sagas.start(session, "order", data)</code>, in a transaction of the program's own; its definition is made known with <code>hold.saga(Saga(…))</code>.
    </Empty>
  );
}

function Further() {
  return (
    <Empty title="Nothing so far" icon="search">
      What was looked through holds none. Press Next to search further back; by subject, or by state, it is found at once.
    </Empty>
  );
}
