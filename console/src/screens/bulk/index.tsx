import "@/screens/bulk/bulk.css";
import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { api } from "@/api/client";
import { useMay } from "@/api/session";
import { Go } from "@/app/Go";
import type { Routes } from "@/app/screens";
import { to, useUrl } from "@/app/url";
import { useLive } from "@/live/live";
import { useAsk } from "@/parts/Ask";
import { Status, Tag } from "@/parts/Badge";
import { Button } from "@/parts/Button";
import { Card, Figure, Head } from "@/parts/Card";
import { Facts } from "@/parts/Facts";
import { Filters } from "@/parts/Filters";
import { Pager } from "@/parts/Pager";
import { Bar, Meter } from "@/parts/Spark";
import { Empty, Loaded } from "@/parts/States";
import { type Column, Table } from "@/parts/Table";
import { Text } from "@/parts/Text";
import { duration, plural, short, whole } from "@/parts/text";
import { Time, useNow } from "@/parts/Time";
import { useAct } from "@/parts/useAct";
import { lettersOf, type Operation, titleOf, wordsOf } from "@/screens/bulk/filter";

const OVER: readonly string[] = ["done", "failed", "aborted"];
const STATES = ["pending", "running", "done", "failed", "aborted"].map((value) => ({ value }));
const WAITS_MS = 15_000;

const COLUMNS: readonly Column<Operation>[] = [
  { title: "What", cell: (one) => titleOf(one.action), width: "170px" },
  { title: "State", cell: (one) => <Status state={one.state} />, width: "110px" },
  {
    title: "Progress",
    cell: (one) => (
      <div className="bulk-cell num">
        <Meter label="Done" value={one.done} most={one.total} tone={toneOf(one)} />
        {short(one.done)} of {short(one.total)}
      </div>
    ),
    width: "210px",
  },
  { title: "Failed", cell: (one) => whole(one.failed), width: "80px", right: true, optional: true },
  { title: "Letters", cell: (one) => <Text value={wordsOf(one.filter).map(([name, value]) => `${name} ${value}`).join(", ") || "all"} most={120} />, optional: true },
  { title: "By", cell: (one) => <Text value={one.requested_by} most={40} />, width: "120px", optional: true },
  { title: "Since", cell: (one) => <Time at={one.created_at} />, width: "110px", right: true },
];

function List() {
  const url = useUrl();
  const query = { state: (url.get("state") ?? undefined) as Operation["state"] | undefined, after: url.get("after"), limit: 50 };
  const operations = useQuery({
    queryKey: ["bulk", "list", query],
    queryFn: ({ signal }) => api.get("/api/v1/bulk", { query: query as never, signal }),
    placeholderData: (before) => before,
  });
  useLive(["letters", "event"], [["bulk", "list"]]);
  return (
    <>
      <Head
        title="Bulk operations"
        actions={
          <Go className="button" to={to("letters", null, { status: "pending", bulk: "replay" })}>
            New operation
          </Go>
        }
      >
        The same act on every letter that a filter finds. Any worker carries them on; they survive its death.
      </Head>
      <div className="stack">
        <Filters fields={[{ name: "state", label: "State", options: STATES, free: true }]} />
        <Card flush>
          <Loaded query={operations}>
            {(page) => (
              <Table
                label="Bulk operations"
                columns={COLUMNS}
                rows={page.items}
                id={(one) => one.id}
                href={(one) => to("bulk", one.id)}
                stale={operations.isPlaceholderData}
                empty={
                  <Empty title="No bulk operations" icon="stack" action={<Go className="button" to={to("letters")}>Letters</Go>}>
                    They appear when somebody acts on all letters of a filter: choose the letters, then Act on all. The same from a
                    terminal: <code>holdfast letters bulk replay --domain payments</code>
                  </Empty>
                }
              />
            )}
          </Loaded>
        </Card>
        <Pager next={operations.data?.next} shown={operations.data?.items.length} />
      </div>
    </>
  );
}

function One() {
  const { id } = useParams({ strict: false }) as { id: string };
  const operation = useQuery({
    queryKey: ["bulk", "one", id],
    queryFn: ({ signal }) => api.get("/api/v1/bulk/{id}", { path: { id }, signal }),
    refetchInterval: (query) => (query.state.data && OVER.includes(query.state.data.state) ? false : 2000),
  });
  useLive(["letters"], [["bulk", "one", id]]);
  return (
    <Loaded query={operation}>
      {(found) => (
        <>
          <Head
            title={`${titleOf(found.action)} ${plural(found.total, "letter")}`}
            back={<Go to={to("bulk")}>Bulk operations</Go>}
            badge={<Status state={found.state} />}
            actions={<Abort operation={found} />}
          />
          <div className="stack">
            <Waits operation={found} />
            <div className="figures">
              <Figure label="Done" value={`${short(found.done)} of ${short(found.total)}`}>
                <Meter label="Done" value={found.done} most={found.total} tone={toneOf(found)} />
              </Figure>
              <Figure label="Succeeded" value={short(found.succeeded)} />
              <Figure label="Failed" value={short(found.failed)} {...(found.failed ? { tone: "bad" as const } : {})} />
              <Figure label="Passed over" value={short(found.skipped)} note="not replayable, or changed meanwhile" />
              <Figure label="Pace" value={found.rate_per_s === null ? "–" : `${short(found.rate_per_s < 10 ? Number(found.rate_per_s.toFixed(1)) : Math.round(found.rate_per_s))}/s`} />
              <Figure label="Time left" value={found.eta_s === null ? "–" : duration(found.eta_s)} />
            </div>
            <Card title="What came of them">
              <Bar label="Letters" parts={partsOf(found)} />
            </Card>
            <Card title="What was asked">
              <Facts
                facts={[
                  ["Letters", <Scope key="scope" operation={found} />],
                  ["Reason", found.reason],
                  ["By", found.requested_by],
                  ["Note", found.note],
                  ["Asked", <Time key="asked" at={found.created_at} absolute />],
                  ["Begun", found.started_at && <Time key="begun" at={found.started_at} absolute />],
                  ["Ended", found.finished_at && <Time key="ended" at={found.finished_at} absolute />],
                  ["Id", <Text key="id" value={found.id} mono />],
                ]}
              />
            </Card>
          </div>
        </>
      )}
    </Loaded>
  );
}

function Scope({ operation }: { operation: Operation }) {
  const words = wordsOf(operation.filter);
  return (
    <span className="row">
      {words.map(([name, value]) => (
        <Tag key={name}>
          {name} <Text value={value} most={60} />
        </Tag>
      ))}
      {!words.length && "all"}
      <Go to={lettersOf(operation.filter)}>See them</Go>
    </span>
  );
}

/** Why nothing happens, if nothing does. */
function Waits({ operation }: { operation: Operation }) {
  const now = useNow();
  const isForgotten = operation.state === "pending" && now - Date.parse(operation.created_at) > WAITS_MS;
  if (!isForgotten) return null;
  return (
    <Card>
      No worker has taken it yet. It needs one of the program that these letters came from: <code>holdfast worker --app module:attribute</code>.
    </Card>
  );
}

function Abort({ operation }: { operation: Operation }) {
  const may = useMay("bulk:operate");
  const ask = useAsk();
  const abort = useAct((reason: string) => api.post("/api/v1/bulk/{id}/abort", { path: { id: operation.id }, body: { reason } }), {
    says: "Aborted. What was done stays done.",
    changes: [["bulk"]],
  });
  const over = OVER.includes(operation.state) ? `It is ${operation.state} already.` : undefined;
  return (
    <Button
      look="danger"
      icon="close"
      why={may.why ?? over}
      busy={abort.busy}
      onClick={async () => {
        const answer = await ask({
          title: "Abort this operation?",
          body: `${plural(operation.done, "letter")} of ${whole(operation.total)} have been dealt with, and stay as they are now. The rest is left alone.`,
          confirm: "Abort",
          danger: true,
          reason: "must",
        });
        if (answer) await abort.run(answer.reason);
      }}
    >
      Abort
    </Button>
  );
}

function partsOf(operation: Operation) {
  const left = OVER.includes(operation.state) ? 0 : Math.max(0, operation.total - operation.done);
  const parts = [
    { label: "succeeded", value: operation.succeeded, tone: "good" as const },
    { label: "failed", value: operation.failed, tone: "bad" as const },
    { label: "passed over", value: operation.skipped, tone: "warn" as const },
    { label: "to do", value: left, tone: "quiet" as const },
  ];
  return parts.filter((part) => part.value > 0);
}

function toneOf(operation: Operation): "good" | "bad" | "warn" | "busy" {
  if (operation.state === "failed") return "bad";
  if (operation.state === "aborted") return "warn";
  return operation.state === "done" ? (operation.failed ? "warn" : "good") : "busy";
}

export const routes: Routes = { "/": List, "/$id": One };
