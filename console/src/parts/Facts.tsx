import "@/parts/facts.css";
import type { ReactNode } from "react";
import { Text } from "@/parts/Text";

export type Fact = readonly [name: string, value: ReactNode];

/** Names and values; what is null or empty is left out. Texts are shown as they are stored, never as markup. */
export function Facts({ facts, wide = false }: { facts: readonly Fact[]; wide?: boolean }) {
  const told = facts.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return (
    <dl className={wide ? "facts wide" : "facts"}>
      {told.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{typeof value === "string" || typeof value === "number" ? <Text value={value} /> : value}</dd>
        </div>
      ))}
    </dl>
  );
}
