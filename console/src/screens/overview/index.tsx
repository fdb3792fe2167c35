import "@/screens/overview/overview.css";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { type Answer, api } from "@/api/client";
import { Go } from "@/app/Go";
import type { Routes } from "@/app/screens";
import { to } from "@/app/url";
import { useEvents, useLive } from "@/live/live";
import { Pill, Status, Tag } from "@/parts/Badge";
import { Card } from "@/parts/Card";
import { Chart, type Series } from "@/parts/Chart";
import { Icon } from "@/parts/Icon";
import { Spark } from "@/parts/Spark";
import { Empty, Loaded } from "@/parts/States";
import { Text } from "@/parts/Text";
import { duration, plural, short, whole } from "@/parts/text";
import { Time } from "@/parts/Time";
import type { Tone } from "@/parts/tones";
import { detailsOf, merged, nameOf, type Told } from "@/screens/overview/events";

type Seen = Answer<"/api/v1/overview">;
type Curves = Answer<"/api/v1/overview/series">;

const EVENTS = 30;
const SAMPLED_MS = 5000;
const FEWEST = 3;
const CHARTS: readonly { readonly title: string; readonly lines: readonly (readonly [name: string, label: string, tone: Series["tone"], steps?: boolean])[] }[] = [
  { title: "Letters", lines: [["letters_pending", "waiting", "warn"], ["letters_review", "need a person", "bad"], ["letters_replaying", "being replayed", "busy"]] },
  { title: "Breakers that are not closed", lines: [["breakers_open", "open", "bad", true], ["breakers_half_open", "half open", "warn", true]] },
  { title: "Outbox", lines: [["outbox_waiting", "waiting", "busy"], ["outbox_abandoned", "given up", "bad"]] },
  { title: "Workflows and sagas", lines: [["workflows_running", "workflows running", "busy"], ["sagas_open", "sagas open", "accent"]] },
];

function Overview() {
  const overview = useQuery({ queryKey: ["overview", "now"], queryFn: ({ signal }) => api.get("/api/v1/overview", { signal }) });
  const curves = useQuery({
    queryKey: ["overview", "series"],
    queryFn: ({ signal }) => api.get("/api/v1/overview/series", { query: { minutes: 60 }, signal }),
    refetchInterval: SAMPLED_MS,
  });
  useLive(["letters", "breakers", "outbox", "workflows", "event"], [["overview", "now"]]);
  useLive([], [["overview", "now"]]);
  return (
    <Loaded query={overview} lines={12}>
      {(seen) => (
        <div className="stack">
          <Headline seen={seen} />
          <Tiles seen={seen} curves={curves.data} />
          <Loaded query={curves} lines={4}>
            {(found) => <Charts curves={found} />}
          </Loaded>
          <div className="columns">
            <div className="stack">
              <Waiting seen={seen} />
              <Breakers seen={seen} />
            </div>
            <Feed seen={seen} />
          </div>
          <p className="muted">
            <Text value={seen.store} />, seen <Time at={seen.at} />
          </p>
        </div>
      )}
    </Loaded>
  );
}

function Headline({ seen }: { seen: Seen }) {
  const { tone, text, parts } = seen.headline;
  return (
    <header className={`overview-headline is-${tone}`} data-tone={tone}>
      <Icon name={tone === "calm" ? "check" : "warning"} size={22} />
      <div>
        <h1>
          <Text value={text} />
        </h1>
        <p className="muted">
          {tone === "calm" && "Nothing waits for a person."}
          {tone === "attention" && "Nothing is down. Somebody should look at this when there is time."}
          {tone === "trouble" && `${plural(parts.length, "thing")} to look at now.`}
        </p>
      </div>
    </header>
  );
}

function Tiles({ seen, curves }: { seen: Seen; curves: Curves | undefined }) {
  const { letters, breakers, outbox, sagas, workflows, workers, doctor } = seen;
  const waiting = letters.by_status["pending"] ?? 0;
  const person = (letters.by_status["requires_review"] ?? 0) + (letters.by_status["reviewing"] ?? 0);
  const open = breakers.by_state["open"] ?? 0;
  const half = breakers.by_state["half_open"] ?? 0;
  const all = Object.values(breakers.by_state).reduce((sum, count) => sum + count, 0);
  const due = ["pending", "failed", "scheduled"].reduce((sum, status) => sum + (outbox?.by_status[status] ?? 0), 0);
  const stuck = sagas?.by_state["stuck"] ?? 0;
  const running = (sagas?.by_state["running"] ?? 0) + (sagas?.by_state["compensating"] ?? 0);
  const failed = workflows.by_status["TERMINAL"] ?? 0;
  const { error = 0, warning = 0 } = doctor.by_severity;
  return (
    <div className="figures">
      <Tile label="Letters waiting" value={waiting} tone={waiting ? "warn" : undefined} to={to("letters", null, { status: "pending" })} note={letters.oldest_age_s === null ? "nothing waits" : `the oldest for ${duration(letters.oldest_age_s)}`}>
        <Curve curves={curves} name="letters_pending" tone="warn" label="Letters waiting, last hour" />
      </Tile>
      <Tile label="Need a person" value={person} tone={person ? "bad" : undefined} to={to("letters", null, { status: "requires_review" })} note={person ? "their attempts are used up" : "no letter does"} />
      <Tile label="Breakers open" value={open} tone={open ? "bad" : undefined} to={to("breakers")} note={`${half ? `${half} half open, ` : ""}${breakers.pinned ? `${breakers.pinned} held, ` : ""}of ${whole(all)}`}>
        <Curve curves={curves} name="breakers_open" tone="bad" label="Breakers open, last hour" />
      </Tile>
      {outbox && (
        <Tile label="Outbox waiting" value={due} tone={outbox.lag_s > 60 ? "warn" : undefined} to={to("outbox")} note={outbox.lag_s > 1 ? `${duration(outbox.lag_s)} behind` : outbox.paused.length ? `${plural(outbox.paused.length, "queue")} paused` : "on time"}>
          <Curve curves={curves} name="outbox_waiting" tone="busy" label="Outbox waiting, last hour" />
        </Tile>
      )}
      {outbox && <Tile label="Given up" value={outbox.by_status["abandoned"] ?? 0} tone={outbox.by_status["abandoned"] ? "bad" : undefined} to={to("outbox", null, { status: "abandoned" })} note="outbox entries" />}
      {sagas &&
        (stuck ? (
          <Tile label="Sagas stuck" value={stuck} tone="bad" to={to("sagas", null, { state: "stuck" })} note={`${whole(running)} running`} />
        ) : (
          <Tile label="Sagas running" value={running} to={to("sagas")} note="none is stuck" />
        ))}
      <Tile
        label="Workflows running"
        value={workflows.by_status["RUNNING"] ?? 0}
        tone={workflows.stranded ? "bad" : undefined}
        to={to("workflows")}
        note={workflows.stranded ? `${workflows.stranded >= 100 ? "100 or more" : workflows.stranded} stranded` : failed ? `${short(failed)} failed` : "none is stranded"}
      />
      <Tile label="Workers" value={workers.alive} to={to("workers")} note="of workflows, alive" />
      <Tile label="Doctor" value={error + warning} tone={error ? "bad" : warning ? "warn" : undefined} to={to("doctor")} note={error || warning ? `${plural(error, "error")}, ${plural(warning, "warning")}` : "nothing found"} />
      {seen.bulk.active > 0 && <Tile label="Bulk operations" value={seen.bulk.active} tone="busy" to={to("bulk")} note="under way" />}
    </div>
  );
}

function Tile({ label, value, note, tone, to: where, children }: { label: string; value: number; note: string; tone?: "bad" | "warn" | "busy" | undefined; to: string; children?: ReactNode }) {
  return (
    <Go to={where} className="figure overview-tile">
      <span className="figure-label">{label}</span>
      <div className={`figure-value num${tone ? ` is-${tone}` : ""}`} title={whole(value)}>
        {short(value)}
      </div>
      <div className="figure-note">{note}</div>
      {children}
    </Go>
  );
}

function Curve({ curves, name, tone, label }: { curves: Curves | undefined; name: string; tone: Tone; label: string }) {
  const values = (curves?.series[name] ?? []).filter((value): value is number => value !== null);
  return values.length > 1 ? <Spark values={values} tone={tone} label={label} width={120} /> : null;
}

function Charts({ curves }: { curves: Curves }) {
  if (curves.times.length < FEWEST && !curves.away_since) return <p className="muted">The curves of the last hour begin in a few seconds: this server has just started.</p>;
  return (
    <div className="stack">
      {curves.away_since && (
        <p role="status" className="muted">
          The store has not answered since <Time at={curves.away_since} />: <Text value={curves.away} most={200} />
        </p>
      )}
      <div className="overview-charts">
        {CHARTS.map(({ title, lines }) => {
          const series: Series[] = lines
            .filter(([name]) => curves.series[name] !== undefined)
            .map(([name, label, tone, steps]) => ({ label, values: curves.series[name] ?? [], tone: tone ?? "accent", area: !steps, steps: steps ?? false }));
          return series.length ? (
            <Card key={title} title={title}>
              <Chart label={`${title} over the last hour`} times={curves.times} series={series} height={130} />
            </Card>
          ) : null;
        })}
      </div>
    </div>
  );
}

function Waiting({ seen }: { seen: Seen }) {
  const { domains, more_domains } = seen.letters;
  return (
    <Card title="Letters that wait" flush>
      {domains.length ? (
        <ul className="overview-list">
          {domains.map((one) => (
            <li key={one.domain}>
              <Go to={to("letters", null, { domain: one.domain, status: "pending" })}>
                <Text value={one.domain} most={60} />
              </Go>
              <span className="row">
                {one.oldest_at && (
                  <span className="muted">
                    oldest <Time at={one.oldest_at} />
                  </span>
                )}
                <Pill count={one.pending} tone="warn" />
              </span>
            </li>
          ))}
          {more_domains > 0 && (
            <li>
              <Go to={to("letters", null, { tab: "domains" })}>{plural(more_domains, "more domain")}</Go>
            </li>
          )}
        </ul>
      ) : (
        <Empty title="No letter waits">
          Letters appear when a guard with <code>dead_letter=True</code> gives up, and drain when its breaker closes.
        </Empty>
      )}
    </Card>
  );
}

function Breakers({ seen }: { seen: Seen }) {
  const { items } = seen.breakers;
  return (
    <Card title="Breakers that are not closed, or held" flush>
      {items.length ? (
        <ul className="overview-list">
          {items.map((one) => (
            <li key={one.name}>
              <Go to={to("breakers", one.name)}>
                <Text value={one.name} most={60} />
              </Go>
              <span className="row">
                {one.pinned && <Tag tone="warn">held{one.by ? ` by ${one.by}` : ""}</Tag>}
                {one.since && (
                  <span className="muted">
                    <Time at={one.since} />
                  </span>
                )}
                <Status state={one.state} />
              </span>
            </li>
          ))}
        </ul>
      ) : (
        <Empty title="Every breaker is closed" icon="shield">
          A breaker opens when calls behind it keep failing, and is shown here until it closes.
        </Empty>
      )}
    </Card>
  );
}

function Feed({ seen }: { seen: Seen }) {
  const live = useEvents<Told>(EVENTS);
  const events = merged(live, seen.events as unknown as readonly Told[], EVENTS);
  return (
    <Card title="What has just happened here" flush>
      {events.length ? (
        <ol className="overview-feed overview-scroll" tabIndex={0} aria-label="Recent events">
          {events.map((told, at) => (
            <li key={`${told.at}-${told.event}-${at}`}>
              <Time at={told.at ?? null} />
              <span>
                <strong className={`is-${told.severity ?? "info"}`}>
                  <Text value={nameOf(told)} most={80} />
                </strong>{" "}
                {told.operation_key && <Text value={told.operation_key} most={60} />}
                {detailsOf(told) && (
                  <span className="muted">
                    {" "}
                    <Text value={detailsOf(told)} most={200} />
                  </span>
                )}
              </span>
            </li>
          ))}
        </ol>
      ) : (
        <Empty title="Nothing yet" icon="pulse">
          Breakers that open, letters that are kept, operations that end: what happens in this server's process is told here. Calls are not.
        </Empty>
      )}
    </Card>
  );
}

export const routes: Routes = { "/": Overview };
