/** How long it was from one moment to another. The API's moments have microseconds; a Date would cut them to milliseconds. */
const MOMENT = /^(.*?)(?:\.(\d+))?(Z|[+-]\d\d:?\d\d)?$/i;

/** A moment in whole microseconds since 1970, which a number holds exactly until 2255; NaN for what is none. */
export function micros(at: string): number {
  const [, whole = "", fraction = "", zone = ""] = MOMENT.exec(at) ?? [];
  return Date.parse(whole + zone) * 1000 + Number(fraction.slice(0, 6).padEnd(6, "0"));
}

/** Seconds from one moment to another, exact to the microsecond; 0 where clocks would have it end before it began. */
export function span(start: string, end: string): number {
  return Math.max(0, micros(end) - micros(start)) / 1e6;
}
