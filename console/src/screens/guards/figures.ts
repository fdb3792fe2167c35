/** Numbers of guards, as both of their pages say them. */
import { duration, plural, whole } from "@/parts/text";

type Counts = Readonly<Record<string, number>>;

/** All calls, also those that were refused. */
export function callsOf(outcomes: Counts): number {
  return Object.values(outcomes).reduce((all, one) => all + one, 0);
}

/** The share of calls that ran and failed, of those that ran; undefined where none did. */
export function failureShare(outcomes: Counts): number | undefined {
  const ran = callsOf(outcomes) - (outcomes["rejected"] ?? 0);
  const failed = (outcomes["timeout"] ?? 0) + (outcomes["transient_failure"] ?? 0) + (outcomes["terminal_failure"] ?? 0);
  return ran > 0 ? failed / ran : undefined;
}

/** What one call may become at worst. */
export function worstCase(calls: number | null, seconds: number | null): string {
  return `${calls === null ? "any number of calls" : plural(calls, "call")}, ${seconds === null ? "no time limit" : duration(seconds)}`;
}

/** A number of a policy's: whole ones with separators, others with four digits. */
export function figure(value: unknown): string {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return Number.isInteger(value) ? whole(value) : String(Number(value.toPrecision(4)));
  if (typeof value === "boolean") return value ? "yes" : "no";
  return String(value);
}

/** Nested numbers in one list: `rules › consecutive(5) › failures`. */
export function flat(numbers: Readonly<Record<string, unknown>>, before = ""): [string, string][] {
  return Object.entries(numbers).flatMap(([name, value]): [string, string][] => {
    const said = before + name.replaceAll("_", " ");
    if (value !== null && typeof value === "object" && !Array.isArray(value)) return flat(value as Record<string, unknown>, `${said} › `);
    return value === null || value === "" ? [] : [[said, figure(value)]];
  });
}
