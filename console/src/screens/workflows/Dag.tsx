import { type KeyboardEvent, type PointerEvent, useCallback, useEffect, useId, useMemo, useRef, useState } from "react";
import { Button } from "@/parts/Button";
import { cut, seen } from "@/parts/text";
import { useNow } from "@/parts/Time";
import { wordsOf } from "@/parts/tones";
import { type Graph, hasEnded, hasFailed, MARKS, type Past, tone, took } from "@/screens/workflows/states";

const WIDTH = 196;
const HEIGHT = 46;
const ACROSS = 58;
const DOWN = 18;
const MARGIN = 16;
const LEAST = 0.08;
const MOST = 2.5;
const STEP = 1.25;
/** In a narrow frame names are to be read: then the graph begins at this scale, where the eye is wanted. */
const NARROW = 600;
const READABLE = 0.75;
const DRAWN = 0.35;

type Node = Graph["nodes"][number];
type Edge = Graph["edges"][number];

interface View {
  readonly x: number;
  readonly y: number;
  readonly scale: number;
}

/** The graph of a workflow: drag to move, ctrl and wheel (or + and −) to zoom, 0 to fit. With `past`, as it stood then. */
export function Dag({ graph, past, chosen, choose }: { graph: Graph; past: Past | undefined; chosen: string | undefined; choose: (ref: string) => void }) {
  const frame = useRef<HTMLDivElement>(null);
  const [view, setView] = useState<View>({ x: 0, y: 0, scale: 1 });
  /** As it was at first, made to fit, or where somebody has moved it to. */
  const [mode, setMode] = useState<"begun" | "fitted" | "moved">("begun");
  const size = useMemo(() => sizeOf(graph), [graph]);
  const drag = useRef<{ x: number; y: number; far: boolean } | undefined>(undefined);

  const wanted = chosen ?? eyeOf(graph, past);
  const spot = graph.nodes.find((node) => node.ref === wanted)?.place;
  const [eyeX, eyeY] = spot ? [xOf(spot.layer) + WIDTH / 2, yOf(spot.row) + HEIGHT / 2] : [0, 0];

  const place = useCallback(() => {
    const box = frame.current?.getBoundingClientRect();
    if (!box?.width) return;
    const whole = Math.min(box.width / size.width, box.height / size.height, 1);
    const isTiny = box.width < NARROW && whole < READABLE && whole > DRAWN;
    const scale = mode === "begun" && isTiny ? READABLE : Math.max(LEAST, whole);
    setView({ scale, x: within(box.width, size.width * scale, eyeX * scale), y: within(box.height, size.height * scale, eyeY * scale) });
  }, [size.width, size.height, eyeX, eyeY, mode]);
  const zoom = useCallback((by: number, at?: { x: number; y: number }) => {
    const box = frame.current?.getBoundingClientRect();
    if (!box) return;
    const spot = at ?? { x: box.width / 2, y: box.height / 2 };
    setMode("moved");
    setView((before) => {
      const scale = Math.max(LEAST, Math.min(MOST, before.scale * by));
      const share = scale / before.scale;
      return { scale, x: spot.x - (spot.x - before.x) * share, y: spot.y - (spot.y - before.y) * share };
    });
  }, []);

  useEffect(() => {
    if (mode !== "moved") place();
  }, [place, mode]);
  useEffect(() => {
    const shown = frame.current;
    if (!shown) return;
    // React's own wheel listeners cannot keep the browser from zooming the page.
    const wheel = (event: WheelEvent) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const box = shown.getBoundingClientRect();
      zoom(Math.exp(-event.deltaY / 300), { x: event.clientX - box.left, y: event.clientY - box.top });
    };
    shown.addEventListener("wheel", wheel, { passive: false });
    const watch = new ResizeObserver(() => mode !== "moved" && place());
    watch.observe(shown);
    return () => {
      shown.removeEventListener("wheel", wheel);
      watch.disconnect();
    };
  }, [place, zoom, mode]);

  const pressed = (event: KeyboardEvent) => {
    const steps: Record<string, readonly [number, number]> = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
    const step = steps[event.key];
    if (step) setView((before) => ({ ...before, x: before.x + step[0], y: before.y + step[1] }));
    else if (event.key === "+" || event.key === "=") zoom(STEP);
    else if (event.key === "-") zoom(1 / STEP);
    else if (event.key === "0") setMode("fitted");
    else return;
    if (step) setMode("moved");
    event.preventDefault();
  };
  const down = (event: PointerEvent) => {
    if (event.button === 0) drag.current = { x: event.clientX, y: event.clientY, far: false };
  };
  const move = (event: PointerEvent<HTMLDivElement>) => {
    const from = drag.current;
    if (!from) return;
    const [x, y] = [event.clientX - from.x, event.clientY - from.y];
    if (!from.far && Math.abs(x) + Math.abs(y) < 4) return;
    if (!from.far) event.currentTarget.setPointerCapture(event.pointerId);
    drag.current = { x: event.clientX, y: event.clientY, far: true };
    setMode("moved");
    setView((before) => ({ ...before, x: before.x + x, y: before.y + y }));
  };
  const up = () => {
    drag.current = undefined;
  };

  const near = view.scale > DRAWN;
  return (
    <div className="workflows-dag">
      <div className="row workflows-dag-tools">
        <Button small icon="plus" aria-label="Larger" title="Larger (+)" onClick={() => zoom(STEP)} />
        <Button small aria-label="Smaller" title="Smaller (-)" onClick={() => zoom(1 / STEP)}>
          −
        </Button>
        <Button small title="Fit (0)" onClick={() => setMode("fitted")}>
          Fit
        </Button>
      </div>
      <div
        ref={frame}
        className="workflows-dag-frame"
        style={{ height: size.height + MARGIN }}
        tabIndex={0}
        role="group"
        aria-label={`The graph of the workflow, ${graph.stages} stages. Arrows move it, plus and minus zoom, 0 fits.`}
        onKeyDown={pressed}
        onPointerDown={down}
        onPointerMove={move}
        onPointerUp={up}
        onPointerCancel={up}
      >
        <svg width="100%" height="100%" aria-hidden={false}>
          <defs>
            <marker id="workflows-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
              <path className="dag-tip" d="M0 0.5 L8 4 L0 7.5 z" />
            </marker>
          </defs>
          <g transform={`translate(${view.x} ${view.y}) scale(${view.scale})`}>
            {graph.edges.map((edge, index) => (
              <path key={index} className={`dag-edge is-${past ? "open" : edge.state}${edge.owner ? " is-part" : ""}`} d={pathOf(edge)} markerEnd="url(#workflows-tip)" />
            ))}
            {graph.nodes.map((node) => (
              <Box key={node.ref} node={node} status={stateOf(node, past)} isPast={past !== undefined} near={near} chosen={node.ref === chosen} choose={choose} />
            ))}
          </g>
        </svg>
      </div>
    </div>
  );
}

function Box({ node, status, isPast, near, chosen, choose }: { node: Node; status: string; isPast: boolean; near: boolean; chosen: boolean; choose: (ref: string) => void }) {
  const [x, y] = [xOf(node.place.layer), yOf(node.place.row)];
  const name = seen(node.ref);
  const id = useId();
  const label = near ? { "aria-labelledby": `${id}-name ${id}-state` } : { "aria-label": `${cut(name, 100)}: ${wordsOf(status)}` };
  return (
    <g
      {...label}
      className={`dag-node is-${tone(status)}${chosen ? " is-chosen" : ""}${hasEnded(status) || status !== "NOT_STARTED" ? "" : " is-idle"}`}
      transform={`translate(${x} ${y})`}
      role="button"
      tabIndex={0}
      aria-pressed={chosen}
      data-stage={node.ref}
      data-state={status}
      onClick={() => choose(node.ref)}
      onKeyDown={(event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        event.stopPropagation();
        choose(node.ref);
      }}
    >
      <title>{cut(`${name}: ${wordsOf(status)}${node.note && !isPast ? `, ${seen(node.note)}` : ""}`, 500)}</title>
      <rect className="dag-box" width={WIDTH} height={HEIGHT} rx={6} />
      <rect className="dag-side" width={4} height={HEIGHT - 16} x={0} y={8} rx={2} />
      {near && (
        <>
          <text id={`${id}-name`} className="dag-name" x={14} y={19}>
            {cut(name, 22)}
          </text>
          <text id={`${id}-state`} className="dag-state" x={14} y={36}>
            {MARKS[status] ?? "?"} {wordsOf(status)}
            {!isPast && <Length node={node} />}
          </text>
        </>
      )}
    </g>
  );
}

function Length({ node }: { node: Node }) {
  const now = useNow();
  const length = took(node.start_time, node.end_time, node.status, now);
  const tries = node.attempts > 1 ? ` · try ${node.attempts}` : "";
  return <>{length ? ` · ${length}${tries}` : tries}</>;
}

function stateOf(node: Node, past: Past | undefined): string {
  return past ? (past.stages[node.ref]?.status ?? "NOT_STARTED") : node.status;
}

/** Where it begins, so that the middle of interest is in sight: in the middle, as far as there is something on both sides. */
function within(room: number, length: number, middle: number): number {
  return length <= room ? (room - length) / 2 : Math.min(0, Math.max(room - length, room / 2 - middle));
}

/** The stage that somebody is here for: what failed, else what goes on or waits, else the first. */
function eyeOf(graph: Graph, past: Past | undefined): string | undefined {
  const states = graph.nodes.map((node) => ({ ref: node.ref, state: stateOf(node, past) }));
  const found = states.find((one) => hasFailed(one.state)) ?? states.find((one) => one.state !== "NOT_STARTED" && !hasEnded(one.state));
  return (found ?? states[0])?.ref;
}

function sizeOf(graph: Graph): { width: number; height: number } {
  const spots = [...graph.nodes.map((node) => node.place), ...graph.edges.flatMap((edge) => edge.way)];
  const layer = spots.reduce((most, spot) => Math.max(most, spot.layer), 0);
  const row = spots.reduce((most, spot) => Math.max(most, spot.row), 0);
  return { width: xOf(layer) + WIDTH + MARGIN, height: yOf(row) + HEIGHT + MARGIN };
}

function xOf(layer: number): number {
  return MARGIN + layer * (WIDTH + ACROSS);
}

function yOf(row: number): number {
  return MARGIN + row * (HEIGHT + DOWN);
}

/** From the right side of one box to the left side of the other, passing the layers between in level lines. */
function pathOf(edge: Edge): string {
  const spots = edge.way.map((spot) => ({ x: xOf(spot.layer), y: yOf(spot.row) + HEIGHT / 2 }));
  const first = spots[0];
  if (!first) return "";
  let [x, y] = [first.x + WIDTH, first.y];
  let path = `M${x} ${y}`;
  spots.slice(1).forEach((spot, index) => {
    const half = (spot.x - x) / 2;
    path += ` C${x + half} ${y} ${spot.x - half} ${spot.y} ${spot.x} ${spot.y}`;
    if (index < spots.length - 2) path += ` L${spot.x + WIDTH} ${spot.y}`;
    [x, y] = [spot.x + WIDTH, spot.y];
  });
  return path;
}
