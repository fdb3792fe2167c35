import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { type Answer, api } from "@/api/client";
import { useMay } from "@/api/session";
import { to, useUrl } from "@/app/url";
import { useLive } from "@/live/live";
import { useAsk } from "@/parts/Ask";
import { Status } from "@/parts/Badge";
import { Button } from "@/parts/Button";
import { Card, Head } from "@/parts/Card";
import { counted, type Field, Filters } from "@/parts/Filters";
import { Pager } from "@/parts/Pager";
import { Empty, Loaded } from "@/parts/States";
import { type Column, Table } from "@/parts/Table";
import { Tabs } from "@/parts/Tabs";
import { Text } from "@/parts/Text";
import { plural } from "@/parts/text";
import { Time } from "@/parts/Time";
import { useAct } from "@/parts/useAct";
import { filterOf, FILTERED, isAction } from "@/screens/bulk/filter";
import { StartBulk } from "@/screens/bulk/Start";
import { Domains } from "@/screens/letters/Domains";
import { Errors } from "@/screens/letters/Errors";
import { Retention } from "@/screens/letters/Retention";

export type Letter = Answer<"/api/v1/letters">["items"][number];

const COLUMNS: readonly Column<Letter>[] = [
  { title: "Domain", cell: (letter) => <Text value={letter.domain} most={60} />, width: "17%" },
  { title: "Status", cell: (letter) => <Status state={letter.status} />, width: "150px" },
  { title: "Error", cell: (letter) => <Text value={letter.error_message || letter.failure_type} most={240} /> },
  { title: "About", cell: (letter) => <Text value={[letter.entity_type, letter.entity_id].filter(Boolean).join(" ")} most={60} />, width: "15%", optional: true },
  { title: "Tries", cell: (letter) => `${letter.retry_count}/${letter.max_retries}`, width: "64px", right: true, optional: true },
  { title: "Since", cell: (letter) => <Time at={letter.created_at} />, width: "104px", right: true },
];

export function Letters() {
  const url = useUrl();
  const may = useMay("bulk:operate");
  const chosen = { status: url.get("status"), domain: url.get("domain"), failure_type: url.get("failure_type") };
  const facets = useQuery({
    queryKey: ["letters", "facets", chosen],
    queryFn: ({ signal }) => api.get("/api/v1/letters/facets", { query: chosen, signal }),
    placeholderData: (before) => before,
  });
  useLive(["letters"], [["letters"]]);
  const fields = useFields(facets.data);
  const action = url.get("bulk");
  const tab = url.get("tab") ?? "list";
  const isFiltered = FILTERED.some((name) => url.get(name) !== undefined);
  return (
    <>
      <Head
        title="Letters"
        actions={
          <Button icon="stack" why={may.why} onClick={() => url.set({ bulk: "replay", after: url.get("after") })}>
            {isFiltered ? "Act on all that fit…" : "Act on all…"}
          </Button>
        }
      >
        Calls that failed for good, kept until somebody replays, resolves or discards them.
      </Head>
      <div className="stack">
        {(tab === "list" || tab === "errors") && <Filters fields={fields} />}
        <Tabs
          label="Letters"
          tabs={[
            { name: "list", title: "Letters", body: () => <List /> },
            { name: "errors", title: "Errors", body: () => <Errors /> },
            { name: "domains", title: "Domains", body: () => <Domains /> },
            { name: "retention", title: "Retention", body: () => <Retention /> },
          ]}
        />
      </div>
      {isAction(action) && (
        <StartBulk
          filter={filterOf(url)}
          action={action}
          choose={(next) => url.set({ bulk: next, after: url.get("after") }, { replace: true })}
          close={() => url.set({ bulk: null, after: url.get("after") }, { replace: true })}
        />
      )}
    </>
  );
}

function List() {
  const url = useUrl();
  const [ids, setIds] = useState<ReadonlySet<string>>(new Set());
  const query = { ...Object.fromEntries(FILTERED.map((name) => [name, url.get(name)])), after: url.get("after"), limit: 50 };
  const letters = useQuery({
    queryKey: ["letters", "list", query],
    queryFn: ({ signal }) => api.get("/api/v1/letters", { query, signal }),
    placeholderData: (before) => before,
  });
  const isFiltered = FILTERED.some((name) => url.get(name) !== undefined);
  const shown = useMemo(() => new Set(letters.data?.items.map((letter) => letter.id)), [letters.data]);
  const selected = useMemo(() => new Set([...ids].filter((id) => shown.has(id))), [ids, shown]);
  return (
    <div className="stack">
      {selected.size > 0 && <Selected ids={[...selected]} clear={() => setIds(new Set())} />}
      <Card flush>
        <Loaded query={letters}>
          {(page) => (
            <Table
              label="Letters"
              columns={COLUMNS}
              rows={page.items}
              id={(letter) => letter.id}
              href={(letter) => to("letters", letter.id)}
              selection={{ ids: selected, set: setIds }}
              stale={letters.isPlaceholderData}
              empty={
                page.next ? (
                  <Empty title="Nothing so far" icon="search">
                    What was looked through holds none. Press Next to search further back; by user, entity, domain or status it is found at once.
                  </Empty>
                ) : isFiltered ? (
                  <Empty title="No letter fits" icon="filter" action={<Button onClick={() => url.set(Object.fromEntries(FILTERED.map((name) => [name, null])))}>Show all letters</Button>}>
                    There are letters, perhaps; none of them is like that.
                  </Empty>
                ) : (
                  <Empty title="No dead letters">
                    They appear when a guard with <code>dead_letter=True</code> gives up on a call:{" "}
                    <code>hold.guard("payments", Retry(), dead_letter=True)</code>.
                  </Empty>
                )
              }
            />
          )}
        </Loaded>
      </Card>
      <Pager next={letters.data?.next} shown={letters.data?.items.length ?? 0} />
    </div>
  );
}

/** What can be done with the rows that are ticked: one after the other, each as if it had been opened. */
function Selected({ ids, clear }: { ids: readonly string[]; clear: () => void }) {
  const may = useMay("letters:operate");
  const ask = useAsk();
  const act = useAct(
    async ({ verb, reason }: { verb: "replay" | "resolve" | "discard"; reason: string }) => {
      let done = 0;
      for (const id of ids) {
        if (verb === "replay") await api.post("/api/v1/letters/{id}/replay", { path: { id }, body: { reason, force: false } });
        else await api.post(`/api/v1/letters/{id}/${verb}`, { path: { id }, body: { reason } });
        done += 1;
      }
      return done;
    },
    { says: (done, { verb }) => `${verb === "replay" ? "Replayed" : verb === "resolve" ? "Resolved" : "Discarded"} ${plural(done, "letter")}`, changes: [["letters"], ["bulk"]] },
  );
  const start = (verb: "replay" | "resolve" | "discard", body: string) => async () => {
    const title = `${verb[0]?.toUpperCase()}${verb.slice(1)}`;
    const answer = await ask({
      title: `${title} ${plural(ids.length, "letter")}?`,
      body,
      confirm: `${title} ${plural(ids.length, "letter")}`,
      reason: verb === "replay" ? "may" : "must",
      danger: verb === "discard",
    });
    if (answer && (await act.run({ verb, reason: answer.reason })) !== undefined) clear();
  };
  return (
    <div className="row" role="group" aria-label="Selected letters">
      <strong>{plural(ids.length, "letter")} selected</strong>
      <Button small icon="replay" why={may.why} busy={act.busy} onClick={start("replay", "Each is called again now, one after the other; what this server cannot replay is handed to the program's workers.")}>
        Replay
      </Button>
      <Button small icon="check" why={may.why} busy={act.busy} onClick={start("resolve", "They are marked as resolved: somebody has seen to it. Nothing is called.")}>
        Resolve
      </Button>
      <Button small look="danger" why={may.why} busy={act.busy} onClick={start("discard", "They are marked as rejected: nobody will replay them. Nothing is deleted.")}>
        Discard
      </Button>
      <Button small look="plain" onClick={clear}>
        Clear
      </Button>
    </div>
  );
}

function useFields(facets: Answer<"/api/v1/letters/facets"> | undefined): readonly Field[] {
  return useMemo(() => {
    const times = [["1 hour", 1], ["1 day", 24], ["1 week", 168]].map(([label, hours]) => ({
      value: new Date(Date.now() - Number(hours) * 3_600_000).toISOString(),
      label: `${label} ago`,
    }));
    return [
      { name: "status", label: "Status", options: counted(facets?.by_status) },
      { name: "domain", label: "Domain", options: counted(facets?.by_domain), free: true },
      { name: "failure_type", label: "Failure type", options: counted(facets?.by_failure_type) },
      { name: "entity_type", label: "Entity type", example: "order" },
      { name: "entity_id", label: "Entity", example: "o-4711" },
      { name: "user_id", label: "User", example: "7" },
      { name: "created_from", label: "Since", options: times, example: "2026-01-31T12:00Z" },
      { name: "created_to", label: "Until", options: times, example: "2026-01-31T12:00Z" },
    ];
  }, [facets]);
}
