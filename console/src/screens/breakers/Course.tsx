import { useMemo } from "react";
import { type Answer } from "@/api/client";
import { Chart } from "@/parts/Chart";

type Breaker = Answer<"/api/v1/breakers/{name}">;

const HEIGHTS: Readonly<Record<string, number>> = { closed: 0, half_open: 1, open: 2 };
const WORDS = ["closed", "half", "open"];

/** The state as steps, from when the server began to look (or the opening it found) until now. */
export function Course({ breaker }: { breaker: Breaker }) {
  const drawn = useMemo(() => steps(breaker), [breaker]);
  return (
    <Chart
      label={`State over time: ${breaker.course.moves.length} moves, now ${breaker.state.replace("_", "-")}`}
      times={drawn.times}
      series={[{ label: "State", values: drawn.values, tone: breaker.state === "closed" ? "good" : breaker.state === "open" ? "bad" : "warn", area: true, steps: true }]}
      write={(value) => WORDS[value] ?? ""}
      height={130}
    />
  );
}

function steps(breaker: Breaker): { times: number[]; values: (number | null)[] } {
  const { moves, since } = breaker.course;
  const first = moves[0];
  const begun = first ? first.from_state : breaker.state;
  const start = Date.parse(since) / 1000;
  const points: [number, number | null][] = moves.map((move) => [Date.parse(move.at) / 1000, HEIGHTS[move.to_state] ?? null]);
  const earliest = points[0]?.[0] ?? start;
  if (begun !== null) points.unshift([Math.min(start, earliest - 1), HEIGHTS[begun] ?? null]);
  points.push([Math.max(Date.parse(breaker.now) / 1000, (points.at(-1)?.[0] ?? 0) + 1), HEIGHTS[breaker.state] ?? null]);
  points.sort((a, b) => a[0] - b[0]);
  return { times: points.map(([at]) => at), values: points.map(([, value]) => value) };
}
