/** Events of the server's process in a few words. */
export interface Told {
  readonly event: string;
  readonly severity?: string;
  readonly operation_key?: string;
  readonly at?: string;
  readonly number?: number;
  readonly [field: string]: unknown;
}

const LEFT_OUT = new Set(["event", "severity", "operation_key", "call_id", "at", "number", "tags", "letter_id", "duration_s"]);
const MOST = 4;

/** `guard.circuit_opened` is "circuit opened". */
export function nameOf(told: Told): string {
  return told.event.replace(/^[a-z]+\./, "").replaceAll("_", " ").replaceAll(".", " ");
}

/** The fields that say something: `outcome succeeded, attempt 2`. */
export function detailsOf(told: Told): string {
  return Object.entries(told)
    .filter(([name, value]) => !LEFT_OUT.has(name) && value !== null && value !== "" && value !== 0 && typeof value !== "object")
    .slice(0, MOST)
    .map(([name, value]) => `${name.replaceAll("_", " ")} ${value}`)
    .join(", ");
}

/** The events that have come since the page was opened and those that the server has kept, the newest first; each once. */
export function merged(live: readonly Told[], before: readonly Told[], most: number): readonly Told[] {
  const seen = new Set<string>();
  return [...live, ...before].filter((told) => {
    const key = `${told.at} ${told.event} ${told.operation_key} ${told.call_id} ${told["letter_id"]}`;
    return !seen.has(key) && seen.add(key);
  }).sort((one, other) => (other.at ?? "").localeCompare(one.at ?? "")).slice(0, most);
}
