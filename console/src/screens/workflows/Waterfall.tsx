import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { type Answer, api } from "@/api/client";
import { Button } from "@/parts/Button";
import { Card } from "@/parts/Card";
import { micros, span } from "@/parts/span";
import { Empty, Loaded } from "@/parts/States";
import { cut, duration, plural, seen } from "@/parts/text";
import { toneOf, wordsOf } from "@/parts/tones";

type Timeline = Answer<"/api/v1/workflows/{id}/timeline">;
type Lane = Timeline["lanes"][number];
type Bar = Lane["bars"][number];

const AT_ONCE = 200;
const TICKS = 5;
/** Tones of what came of a call. */
const OUTCOMES: Readonly<Record<string, string>> = { retried: "warn", repeated: "busy", parked: "warn", suspended: "good" };

/** What the stages spent their time on: a bar for each call and each wait. */
export function Waterfall({ id, chosen, choose }: { id: string; chosen: string | undefined; choose: (ref: string) => void }) {
  const timeline = useQuery({ queryKey: ["workflows", id, "timeline"], queryFn: ({ signal }) => api.get("/api/v1/workflows/{id}/timeline", { path: { id }, signal }) });
  return (
    <Card
      title="Timeline"
      actions={
        <div className="row workflows-legend">
          <Key tone="good" text="call" />
          <Key tone="warn" text="call that was tried again" />
          <Key tone="bad" text="failed" />
          <Key tone="busy" text="under way" />
          <Key tone="wait" text="wait" />
        </div>
      }
    >
      <Loaded query={timeline}>{(found) => <Lanes timeline={found} chosen={chosen} choose={choose} />}</Loaded>
    </Card>
  );
}

function Lanes({ timeline, chosen, choose }: { timeline: Timeline; chosen: string | undefined; choose: (ref: string) => void }) {
  const [most, setMost] = useState(AT_ONCE);
  const { lanes } = timeline;
  if (!lanes.length) return <Empty title="Nothing has begun" icon="clock">A bar appears for each stage once its first task can be called.</Empty>;
  const now = micros(timeline.now);
  const first = lanes.reduce((least, lane) => Math.min(least, micros(lane.start)), Infinity);
  const last = lanes.reduce((latest, lane) => Math.max(latest, ...lane.bars.map((bar) => endOf(bar, now)), lane.end ? micros(lane.end) : now), first + 1);
  const whole = last - first;
  return (
    <div className="workflows-waterfall" role="group" aria-label="Stages over time">
      <div className="waterfall-axis" aria-hidden="true">
        {Array.from({ length: TICKS + 1 }, (_, at) => (
          <span key={at} style={{ left: `${(100 * at) / TICKS}%` }}>
            {at === 0 ? "0" : duration((whole * at) / TICKS / 1e6)}
          </span>
        ))}
      </div>
      {lanes.slice(0, most).map((lane) => (
        <button
          key={`${lane.stage} ${lane.incarnation}`}
          type="button"
          className={`waterfall-lane${lane.stage === chosen ? " is-chosen" : ""}`}
          data-lane={lane.stage}
          onClick={() => choose(lane.stage)}
        >
          <span className="waterfall-name" title={seen(lane.stage)}>
            <bdi dir="auto">{cut(seen(lane.stage), 40)}</bdi>
            {lane.incarnation > 1 && <span className="muted"> #{lane.incarnation}</span>}
          </span>
          <span className="waterfall-bars">
            {lane.bars.map((bar, at) => (
              <span
                key={at}
                className={`waterfall-bar is-${toneOfBar(bar, lane)}`}
                style={{ left: `${(100 * (micros(bar.start) - first)) / whole}%`, width: `${(100 * Math.max(0, endOf(bar, now) - micros(bar.start))) / whole}%` }}
                title={words(bar, now)}
                data-kind={bar.kind}
                data-outcome={bar.outcome}
              />
            ))}
          </span>
          <span className="unseen">{told(lane)}</span>
          <span className="waterfall-length num">{duration(span(lane.start, lane.end ?? timeline.now))}</span>
        </button>
      ))}
      {lanes.length > most && (
        <Button small look="plain" onClick={() => setMost(most * 5)}>
          {plural(lanes.length - most, "more stage")}
        </Button>
      )}
      {!timeline.complete && <p className="hint">The log is too long to be told whole: what came later is in the log.</p>}
    </div>
  );
}

function Key({ tone, text }: { tone: string; text: string }) {
  return (
    <span className="row">
      <span className={`waterfall-key is-${tone}`} aria-hidden="true" />
      {text}
    </span>
  );
}

function endOf(bar: Bar, now: number): number {
  return bar.end ? micros(bar.end) : Math.max(now, micros(bar.start));
}

function toneOfBar(bar: Bar, lane: Lane): string {
  if (bar.kind === "wait") return "wait";
  if (!bar.end && !lane.end) return "busy";
  return OUTCOMES[bar.outcome] ?? toneOf(bar.outcome);
}

function words(bar: Bar, now: number): string {
  const length = duration(Math.max(0, endOf(bar, now) - micros(bar.start)) / 1e6);
  const what = bar.kind === "wait" ? `waits${bar.note ? ` (${bar.note})` : ""}` : `task ${bar.task}, attempt ${bar.attempt}: ${bar.outcome || "under way"}${bar.note ? `, ${bar.note}` : ""}`;
  return cut(seen(`${what}, ${length}`), 500);
}

function told(lane: Lane): string {
  return ` ${wordsOf(lane.status)}, ${plural(lane.bars.filter((bar) => bar.kind === "run").length, "call")}, `;
}
