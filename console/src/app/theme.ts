/** Light, dark, or what the system says. */
import { useSyncExternalStore } from "react";

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

const KEY = "holdfast.theme";
const listeners = new Set<() => void>();
const dark = window.matchMedia("(prefers-color-scheme: dark)");

export function chosenTheme(): Theme {
  const kept = remembered();
  return THEMES.find((theme) => theme === kept) ?? "system";
}

export function chooseTheme(theme: Theme): void {
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // Private windows may refuse to remember; the choice still holds for this page.
  }
  applyTheme(theme);
}

export function applyTheme(theme: Theme = chosenTheme()): void {
  if (theme === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme;
  for (const told of listeners) told();
}

/** "light" or "dark": what is on the screen now. Charts are drawn anew when it changes. */
export function useShade(): "light" | "dark" {
  return useSyncExternalStore(subscribe, shade);
}

export function useTheme(): Theme {
  return useSyncExternalStore(subscribe, () => (document.documentElement.dataset["theme"] as Theme | undefined) ?? "system");
}

function shade(): "light" | "dark" {
  const chosen = document.documentElement.dataset["theme"];
  return chosen === "light" || chosen === "dark" ? chosen : dark.matches ? "dark" : "light";
}

function subscribe(told: () => void): () => void {
  listeners.add(told);
  dark.addEventListener("change", told);
  return () => {
    listeners.delete(told);
    dark.removeEventListener("change", told);
  };
}

function remembered(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}
