/** Stored texts come from anywhere. What cannot be seen, or turns the line around, is shown and never obeyed. */
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** The text with every control, zero-width and direction character written out: `\u202e`. */
export function seen(text: string): string {
  return text.replace(UNSEEN, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** At most so many characters; an ellipsis says that there are more. */
export function cut(text: string, most: number): string {
  return text.length <= most ? text : `${text.slice(0, most)}…`;
}

const WHOLE = new Intl.NumberFormat("en");
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export function whole(value: number): string {
  return WHOLE.format(value);
}

/** 1,234 as it is, 1.2M when it is large. */
export function short(value: number): string {
  return Math.abs(value) < 10_000 ? WHOLE.format(value) : SHORT.format(value);
}

export function percent(share: number, digits = 1): string {
  return `${(share * 100).toFixed(digits)} %`;
}

/** Seconds as people say them: `85 µs`, `3.2 ms`, `340 ms`, `2.4 s`, `3 min`, `2 h 5 min`, `4 d`. */
export function duration(seconds: number): string {
  const span = Math.abs(seconds);
  if (span === 0) return "0 s";
  if (span < 0.0009995) return `${digits(span * 1e6)} µs`;
  if (span < 0.9995) return `${digits(span * 1000)} ms`;
  if (span < 9.95) return `${span.toFixed(1)} s`;
  if (span < 60) return `${Math.min(59, Math.round(span))} s`;
  if (span < 3600) return `${Math.floor(span / 60)} min${span < 600 && span % 60 >= 1 ? ` ${Math.floor(span % 60)} s` : ""}`;
  if (span < 86_400) return `${Math.floor(span / 3600)} h${span % 3600 >= 60 ? ` ${Math.floor((span % 3600) / 60)} min` : ""}`;
  return `${Math.floor(span / 86_400)} d${span < 864_000 && span % 86_400 >= 3600 ? ` ${Math.floor((span % 86_400) / 3600)} h` : ""}`;
}

/** Two digits that count: `3.2`, `34`, `340`. */
function digits(value: number): string {
  return value < 9.95 ? value.toFixed(1) : String(Math.round(value));
}

/** `1 letter`, `2 letters`. */
export function plural(count: number, one: string, many = `${one}s`): string {
  return `${whole(count)} ${count === 1 ? one : many}`;
}
