import { useQuery } from "@tanstack/react-query";
import { api } from "@/api/client";
import { useMay } from "@/api/session";
import { useUrl } from "@/app/url";
import { Button } from "@/parts/Button";
import { Card, Figure } from "@/parts/Card";
import { Facts } from "@/parts/Facts";
import { Old } from "@/parts/Old";
import { Meter } from "@/parts/Spark";
import { Loaded } from "@/parts/States";
import { plural, short } from "@/parts/text";

const OVERFLOWS: Readonly<Record<string, string>> = {
  drop_oldest: "the oldest are dropped",
  compress_oldest: "the oldest are compressed into summaries",
  reject: "new ones are refused",
};

/** What is kept for how long, and how full it is. */
export function Retention() {
  const retention = useQuery({ queryKey: ["letters", "retention"], queryFn: ({ signal }) => api.get("/api/v1/letters/retention", { signal }) });
  return (
    <Loaded query={retention}>
      {(found) => (
        <div className="stack">
          <div className="figures">
            <Figure label="Active letters" value={short(found.active)} note={`room for ${short(found.capacity)}`}>
              <Meter label="Room" value={found.active} most={found.capacity} tone={found.active > 0.9 * found.capacity ? "bad" : "busy"} />
            </Figure>
            <Figure label="Resolved, older than 30 days" value={short(found.resolved_older_than_30_days)} />
            <Figure label="Archived, older than 90 days" value={short(found.archived_older_than_90_days)} />
            <Figure label="Compressed" value={short(found.summarised_letters)} note={plural(found.summaries, "summary", "summaries")} />
          </div>
          <Card title="What happens by itself">
            <Facts
              facts={[
                ["Archived", `${plural(found.archive_after_days, "day")} after they were resolved`],
                ["Deleted", `${plural(found.purge_after_days, "day")} after they were resolved, if they are archived`],
                ["A silent replay is taken back", `after ${plural(found.stale_after_minutes, "minute")}`],
                ["When it is full", OVERFLOWS[found.overflow] ?? found.overflow],
                ["Outside of the store", found.spooled ? "a spool file holds failures that are not in the store yet; a worker takes them in" : "nothing is spooled"],
              ]}
            />
            <p className="hint">Workers see to it every few minutes. Change it with Schedule(…) and Capacity(…).</p>
          </Card>
          <ByHand archiveAfter={found.archive_after_days} purgeAfter={found.purge_after_days} />
        </div>
      )}
    </Loaded>
  );
}

/** The same before workers get to it, or of another age. */
function ByHand({ archiveAfter, purgeAfter }: { archiveAfter: number; purgeAfter: number }) {
  const url = useUrl();
  const mayArchive = useMay("letters:operate");
  const mayPurge = useMay("letters:admin");
  const old = url.get("old");
  const close = () => url.set({ old: null }, { replace: true });
  return (
    <Card
      title="By hand"
      actions={
        <>
          <Button small icon="stack" why={mayArchive.why} onClick={() => url.set({ old: "archive" })}>
            Archive resolved…
          </Button>
          <Button small icon="bin" look="danger" why={mayPurge.why} onClick={() => url.set({ old: "purge" })}>
            Delete archived…
          </Button>
        </>
      }
    >
      <p className="muted">Before workers get to it, or of another age. How many there are is shown before anything is done.</p>
      {old === "archive" && (
        <Old
          title="Archive resolved letters"
          right="letters:operate"
          verb={["Archive", "Archived", "would be archived"]}
          noun={["letter", "letters"]}
          since="They were resolved"
          days={archiveAfter}
          forGood={false}
          count={(older_than_days, _, signal) => api.get("/api/v1/letters/archive/preview", { query: { older_than_days }, signal })}
          act={async ({ days, expected, reason }) => {
            const { archived, more } = await api.post("/api/v1/letters/archive", { body: { older_than_days: days, reason } });
            return { done: archived, left: more ? Math.max(0, expected - archived) : 0 };
          }}
          changes="letters"
          close={close}
        >
          They stay readable until they are deleted, and are no longer among what was resolved of late.
        </Old>
      )}
      {old === "purge" && (
        <Old
          title="Delete archived letters"
          right="letters:admin"
          verb={["Delete", "Deleted", "would be deleted"]}
          noun={["letter", "letters"]}
          since="They were resolved, or else archived,"
          days={purgeAfter}
          forGood
          count={(older_than_days, _, signal) => api.get("/api/v1/letters/purge/preview", { query: { older_than_days }, signal })}
          act={async ({ days, expected, goes_on, reason }) => {
            const { deleted, left } = await api.post("/api/v1/letters/purge", { body: { older_than_days: days, expected, goes_on, reason } });
            return { done: deleted, left };
          }}
          changes="letters"
          close={close}
        >
          They are gone for good, with what was asked and what was answered. Only archived letters go; the audit trail keeps its events.
        </Old>
      )}
    </Card>
  );
}
