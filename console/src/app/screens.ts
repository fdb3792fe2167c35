/** Every screen: one line here, one folder in `screens/`. The order is that of the navigation. */
import type { ComponentType } from "react";
import type { IconName } from "@/parts/Icon";

/** What a screen's `index.tsx` exports as `routes`: a component for each path below the screen's own. */
export type Routes = Readonly<Record<string, ComponentType>>;

export interface Screen {
  /** The folder, the path and the first part of its query keys. */
  readonly name: string;
  readonly title: string;
  readonly icon: IconName;
  /** `g` and then this key goes there. */
  readonly key: string;
  /** Who may not read this does not see it in the navigation. */
  readonly right: string;
  /** Paths below `/<name>`: "/" is the list, "/$id" one thing. Each is a key of the screen's `routes`. */
  readonly paths: readonly string[];
  readonly load: () => Promise<{ routes: Routes }>;
  /** A line and a heading above the entry in the navigation. */
  readonly group?: string;
}

const ONE = ["/", "/$id"] as const;

// prettier-ignore
export const SCREENS: readonly Screen[] = [
  { name: "overview", title: "Overview", icon: "pulse", key: "o", right: "system:read", paths: ["/"], load: () => import("@/screens/overview") },
  { name: "guards", title: "Guards", icon: "shield", key: "u", right: "guards:read", paths: ONE, load: () => import("@/screens/guards"), group: "Guarded" },
  { name: "breakers", title: "Breakers", icon: "pause", key: "r", right: "breakers:read", paths: ONE, load: () => import("@/screens/breakers") },
  { name: "pools", title: "Pools", icon: "fork", key: "p", right: "pools:read", paths: ONE, load: () => import("@/screens/pools") },
  { name: "letters", title: "Letters", icon: "letter", key: "l", right: "letters:read", paths: ONE, load: () => import("@/screens/letters"), group: "Kept" },
  { name: "bulk", title: "Bulk", icon: "stack", key: "b", right: "bulk:read", paths: ONE, load: () => import("@/screens/bulk") },
  { name: "outbox", title: "Outbox", icon: "send", key: "x", right: "outbox:read", paths: ONE, load: () => import("@/screens/outbox"), group: "Finished" },
  { name: "sagas", title: "Sagas", icon: "steps", key: "s", right: "sagas:read", paths: ONE, load: () => import("@/screens/sagas") },
  { name: "workflows", title: "Workflows", icon: "graph", key: "w", right: "workflows:read", paths: ONE, load: () => import("@/screens/workflows") },
  { name: "schedules", title: "Schedules", icon: "clock", key: "c", right: "workflows:read", paths: ONE, load: () => import("@/screens/schedules") },
  { name: "workers", title: "Workers", icon: "people", key: "k", right: "workers:read", paths: ONE, load: () => import("@/screens/workers"), group: "System" },
  { name: "audit", title: "Audit", icon: "book", key: "a", right: "audit:read", paths: ["/"], load: () => import("@/screens/audit") },
  { name: "doctor", title: "Doctor", icon: "stethoscope", key: "d", right: "system:read", paths: ["/"], load: () => import("@/screens/doctor") },
  { name: "access", title: "Access", icon: "key", key: "i", right: "access:read", paths: ["/"], load: () => import("@/screens/access") },
];

/** The screen that a path belongs to. */
export function screenAt(path: string): Screen | undefined {
  const name = path.split("/")[1] ?? "";
  return SCREENS.find((screen) => screen.name === name);
}
