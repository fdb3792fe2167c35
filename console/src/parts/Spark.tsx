import "@/parts/spark.css";
import type { Tone } from "@/parts/tones";

/** A line without axes: how it has gone. */
export function Spark({ values, label, tone = "busy", width = 96, height = 22 }: { values: readonly number[]; label: string; tone?: Tone; width?: number; height?: number }) {
  const most = Math.max(...values, 1);
  const step = values.length > 1 ? (width - 2) / (values.length - 1) : 0;
  const points = values.map((value, at) => `${(1 + at * step).toFixed(1)},${(height - 2 - (value / most) * (height - 4)).toFixed(1)}`);
  return (
    <svg className={`spark spark-${tone}`} width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={label} preserveAspectRatio="none">
      {values.length > 1 && <path className="spark-area" d={`M1,${height - 1} L${points.join(" L")} L${(1 + (values.length - 1) * step).toFixed(1)},${height - 1} Z`} />}
      {values.length > 1 && <polyline points={points.join(" ")} />}
    </svg>
  );
}

/** How much of something is used, or done. */
export function Meter({ value, most, label, tone = "busy" }: { value: number; most: number; label: string; tone?: Tone }) {
  const share = most > 0 ? Math.min(1, Math.max(0, value / most)) : 0;
  return (
    <div className={`meter meter-${tone}`} role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={most} aria-valuenow={Math.min(value, most)} title={`${label}: ${value} of ${most}`}>
      <span style={{ width: `${share * 100}%` }} />
    </div>
  );
}

/** Parts of a whole in one bar, for instance letters by status. */
export function Bar({ parts, label }: { parts: readonly { label: string; value: number; tone: Tone }[]; label: string }) {
  const whole = parts.reduce((sum, part) => sum + part.value, 0);
  return (
    <div className="bar" role="img" aria-label={`${label}: ${parts.map((part) => `${part.value} ${part.label}`).join(", ")}`}>
      {whole > 0 && parts.map((part) => <span key={part.label} className={`bar-${part.tone}`} style={{ flexGrow: part.value }} title={`${part.value} ${part.label}`} />)}
    </div>
  );
}
