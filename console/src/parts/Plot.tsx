import "uplot/dist/uPlot.min.css";
import "@/parts/plot.css";
import { useEffect, useRef } from "react";
import uPlot from "uplot";
import { useShade } from "@/app/theme";
import type { ChartProps } from "@/parts/Chart";
import { stamp } from "@/parts/Time";
import { short } from "@/parts/text";

/** The chart itself; made anew when its shape or the theme changes, and only fed when its numbers do. */
export default function Plot({ times, series, height = 160, write = short }: ChartProps) {
  const frame = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(undefined);
  const shade = useShade();
  const shape = JSON.stringify(series.map(({ label, tone, area, steps }) => [label, tone, area, steps]));
  const data = useRef<uPlot.AlignedData>([[]]);
  data.current = [times as number[], ...series.map((one) => one.values as (number | null)[])];
  const latest = useRef({ series, write });
  latest.current = { series, write };

  useEffect(() => {
    const into = frame.current;
    if (!into) return;
    const ink = colours(into);
    const axis = { stroke: ink("--muted"), grid: { stroke: ink("--line"), width: 1 }, ticks: { show: false }, font: '11px "Inter Variable", system-ui, sans-serif' };
    // Where nobody points, the legend has the last numbers.
    const said = (of: uPlot, value: number | null, at: number, index: number | null) => {
      const shown = index === null ? (of.data[at]?.at(-1) ?? null) : value;
      return shown === null || shown === undefined ? "–" : latest.current.write(shown);
    };
    const made = new uPlot(
      {
        width: Math.max(into.clientWidth, 80),
        height,
        padding: [8, 22, 0, 0],
        cursor: { points: { size: 6 }, drag: { x: false, y: false } },
        legend: { live: true, markers: { width: 0, fill: (_, at) => ink(`--${latest.current.series[at - 1]?.tone ?? "accent"}`) } },
        scales: { y: { range: (_, low, high) => [Math.min(0, low), high > 0 ? high * 1.08 : 1] } },
        axes: [
          { ...axis, size: 28, space: 80, values: (of, ticks) => ticks.map((tick) => moment(tick, (of.data[0].at(-1) ?? 0) - (of.data[0][0] ?? 0))) },
          { ...axis, size: 46, space: 28, values: (_, ticks) => ticks.map((tick) => latest.current.write(tick)) },
        ],
        series: [
          { label: "Time", value: (of, value) => moment(value ?? of.data[0].at(-1) ?? null, 0) },
          ...latest.current.series.map((one) => {
            const colour = ink(`--${one.tone ?? "accent"}`);
            return {
              label: one.label,
              stroke: colour,
              width: 1.5,
              points: { show: false },
              value: said,
              ...(one.area ? { fill: faded(colour) } : {}),
              ...(one.steps && uPlot.paths.stepped ? { paths: uPlot.paths.stepped({ align: 1 }) } : {}),
            };
          }),
        ],
      },
      data.current,
      into,
    );
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: Math.max(into.clientWidth, 80), height }));
    watch.observe(into);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = undefined;
    };
  }, [shape, shade, height]);

  useEffect(() => {
    plot.current?.setData(data.current);
  }, [times, series]);

  return <div ref={frame} className="plot" />;
}

/** A time in 24 hours: with seconds over minutes, with the date over days. */
function moment(at: number | null, span: number): string {
  if (at === null) return "–";
  const said = stamp(new Date(at * 1000));
  if (span > 2 * 86_400) return said.slice(5, 16);
  return span > 1800 ? said.slice(11, 16) : said.slice(11);
}

/** Custom properties as colours that a canvas understands: `light-dark()` is decided by the browser, not by us. */
function colours(near: HTMLElement): (name: string) => string {
  return (name) => {
    // A new one for each: where motion is reduced, colours change by a very short transition, which begins at the old one.
    const probe = document.createElement("span");
    probe.style.color = `var(${name})`;
    near.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };
}

function faded(colour: string): string {
  return colour.replace(/^rgb\((.*)\)$/, "rgba($1, 0.12)");
}
