import { useQuery } from "@tanstack/react-query";
import { api } from "@/api/client";
import { Card, Figure } from "@/parts/Card";
import { Facts } from "@/parts/Facts";
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
        </div>
      )}
    </Loaded>
  );
}
