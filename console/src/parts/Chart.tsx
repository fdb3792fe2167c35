import { lazy, Suspense } from "react";
import type { Tone } from "@/parts/tones";

export interface Series {
  readonly label: string;
  /** As many as there are times; null is a gap. */
  readonly values: readonly (number | null)[];
  readonly tone?: Tone | "accent";
  /** Fill below the line. */
  readonly area?: boolean;
  /** A step, for what holds until it changes. */
  readonly steps?: boolean;
}

export interface ChartProps {
  /** What it shows, for those who do not see it. */
  label: string;
  /** Unix seconds, ascending. */
  times: readonly number[];
  series: readonly Series[];
  height?: number;
  /** How a value is written on the axis and in the legend. */
  write?: (value: number) => string;
}

const Plot = lazy(() => import("@/parts/Plot"));

/** Lines over time. uPlot comes with the first chart, not with the first page. */
export function Chart(props: ChartProps) {
  const height = props.height ?? 160;
  return (
    <figure className="chart" role="img" aria-label={props.label} style={{ minHeight: height }}>
      <Suspense fallback={null}>
        <Plot {...props} height={height} />
      </Suspense>
    </figure>
  );
}
