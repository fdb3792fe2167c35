import { useQuery } from "@tanstack/react-query";
import { api } from "@/api/client";
import { Go } from "@/app/Go";
import { to, useUrl } from "@/app/url";
import { Pill, Status, Tag } from "@/parts/Badge";
import { Card } from "@/parts/Card";
import { Empty, Loaded } from "@/parts/States";
import { Text } from "@/parts/Text";
import { plural, whole } from "@/parts/text";
import { Time } from "@/parts/Time";
import { FILTERED } from "@/screens/bulk/filter";

/** Errors that are the same but for numbers and names, the most frequent first. */
export function Errors() {
  const url = useUrl();
  const query = Object.fromEntries(FILTERED.map((name) => [name, url.get(name)]));
  const errors = useQuery({
    queryKey: ["letters", "fingerprints", query],
    queryFn: ({ signal }) => api.get("/api/v1/letters/fingerprints", { query, signal }),
    placeholderData: (before) => before,
  });
  return (
    <Card flush>
      <Loaded query={errors}>
        {(found) =>
          found.items.length ? (
            <>
              <ul aria-label="Errors">
                {found.items.map((group) => (
                  <li key={group.fingerprint} className="letters-group">
                    <div className="row">
                      <Go to={to("letters", null, { ...query, domain: group.domain, failure_type: group.failure_type })}>
                        <code>
                          <Text value={group.message || group.failure_type} most={300} />
                        </code>
                      </Go>
                      <Pill count={group.count} tone="bad" />
                    </div>
                    <div className="row muted">
                      <span>
                        <Tag>{<Text value={group.domain} most={60} />}</Tag> <Text value={group.failure_type} most={80} />
                      </span>
                      <span>
                        {Object.entries(group.by_status).map(([status, count]) => (
                          <span key={status}>
                            {whole(count)} <Status state={status} />{" "}
                          </span>
                        ))}
                      </span>
                      <span>
                        newest <Time at={group.newest} />, oldest <Time at={group.oldest} />
                      </span>
                    </div>
                    <div className="letters-samples muted">
                      For instance{" "}
                      {group.sample.slice(0, 3).map((id, at) => (
                        <Go key={id} to={to("letters", id)}>
                          {at === 0 ? <Text value={group.example || id} most={160} /> : `another`}
                        </Go>
                      ))}
                    </div>
                  </li>
                ))}
              </ul>
              <p className="letters-group muted">
                {found.is_all
                  ? `These are all ${plural(found.looked_at, "letter")} that fit.`
                  : `These are the newest ${plural(found.looked_at, "letter")} that fit; older ones were not looked at.`}
              </p>
            </>
          ) : (
            <Empty title="No errors">Letters with the same error are put together here. Now there is none that fits.</Empty>
          )
        }
      </Loaded>
    </Card>
  );
}
