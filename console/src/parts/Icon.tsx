const PATHS = {
  pulse: "M1.5 8.5h3l2-5 3 9 2-5.5 1 1.5h2",
  shield: "M8 1.5l5.5 2v4c0 3.5-2.3 6-5.5 7-3.2-1-5.5-3.500-5.5-7v-4z",
  fork: "M8 14V9M8 9C8 6 3.500 7 3.500 3M8 9c0-3 4.500-2 4.500-6M2 4.500L3.500 2.500 5 4.500M11 4.500l1.500-2 1.500 2",
  letter: "M1.500 3.500h13v9h-13zM1.500 4l6.500 5 6.500-5",
  stack: "M8 1.500l6.500 3.500L8 8.500 1.500 5zM1.500 8L8 11.500 14.500 8M1.500 11L8 14.500 14.500 11",
  send: "M14.500 1.500L1.500 6.500l5 2.500 2.500 5.500zM6.500 9l3.500-3.500",
  steps: "M1.500 13.500h4v-4h4.500v-4h4.500",
  graph: "M2 6h4v4H2zM10 1.500h4v4h-4zM10 10.500h4v4h-4zM6 8h2V3.500h2M8 8v4.500h2",
  clock: "M8 1.500a6.500 6.500 0 100 13 6.500 6.500 0 000-13zM8 4.500V8l2.500 1.500",
  people: "M6 7.500a2.500 2.500 0 100-5 2.500 2.500 0 000 5zM1.500 13.500c0-2.500 2-4 4.500-4s4.500 1.500 4.500 4M10.500 2.800a2.500 2.500 0 010 4.400M12 9.800c1.600.5 2.500 1.800 2.500 3.700",
  book: "M2.500 2.500h8a2 2 0 012 2v9h-8a2 2 0 01-2-2zM2.500 11.500a2 2 0 012-2h8M5.500 5.500h4",
  stethoscope: "M3 1.500v4a3 3 0 006 0v-4M6 8.500V11a3.500 3.500 0 007 0V9M13 9a1.500 1.500 0 100-3 1.500 1.500 0 000 3z",
  key: "M5.500 14a3.500 3.500 0 110-7 3.500 3.500 0 010 7zM8 8l6-6M11 5l2 2M9 7l1.500 1.500",
  sun: "M8 5a3 3 0 100 6 3 3 0 000-6zM8 1v1.500M8 13.500V15M1 8h1.500M13.500 8H15M3 3l1 1M12 12l1 1M3 13l1-1M12 4l1-1",
  moon: "M13.500 9.500A6 6 0 016.500 2.500a6 6 0 107 7z",
  screen: "M1.500 2.500h13v8.500h-13zM5.500 14h5M8 11v3",
  menu: "M2 4h12M2 8h12M2 12h12",
  close: "M3.500 3.500l9 9M12.500 3.500l-9 9",
  copy: "M5.500 5.500h8v8h-8zM10.500 5.500v-3h-8v8h3",
  check: "M2.500 8.500l3.500 3.500 7.500-8",
  left: "M10 3L5 8l5 5",
  right: "M6 3l5 5-5 5",
  down: "M3 6l5 5 5-5",
  first: "M11.500 3l-5 5 5 5M4 3v10",
  search: "M7 2.500a4.500 4.500 0 100 9 4.500 4.500 0 000-9zM10.500 10.500l3.500 3.500",
  warning: "M8 2l6.500 11.500h-13zM8 6.500v3.500M8 11.900v.2",
  refresh: "M13.500 8a5.500 5.500 0 11-1.600-3.900L13.500 5.500M13.500 2v3.500H10",
  replay: "M3 3v4h4M3 7a5.500 5.500 0 112 5.500",
  pause: "M5 3v10M11 3v10",
  play: "M4.500 2.500l8.500 5.500-8.500 5.500z",
  more: "M3 8h.1M8 8h.1M13 8h.1",
  filter: "M1.500 3h13l-5 6v4.500l-3-1.500V9z",
  eye: "M1.500 8S4 3.500 8 3.500 14.500 8 14.500 8 12 12.500 8 12.500 1.500 8 1.500 8zM8 6.200a1.800 1.800 0 100 3.600 1.800 1.800 0 000-3.600z",
  plus: "M8 3v10M3 8h10",
  bin: "M2.500 4h11M6 4V2.500h4V4M4 4l.7 9.500h6.600L12 4M6.700 6.500v4.500M9.300 6.500v4.500",
} as const;

export type IconName = keyof typeof PATHS;

/** A drawing that says nothing by itself: the text beside it, or the button's label, does. */
export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg className="glyph" width={size} height={size} viewBox="0 0 16 16" fill="none" stroke="currentColor" strokeWidth="1.4" strokeLinecap="round" strokeLinejoin="round" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
