import { cut, seen } from "@/parts/text";

interface Props {
  value: string | number | null | undefined;
  /** Characters; the rest is behind the title. Without it everything is there, and wraps. */
  most?: number;
  mono?: boolean;
}

/** A stored text: in its own direction, with what cannot be seen written out. Never markup. */
export function Text({ value, most, mono = false }: Props) {
  if (value === null || value === undefined || value === "") return <span className="muted">–</span>;
  const whole = seen(String(value));
  const shown = most === undefined ? whole : cut(whole, most);
  return (
    <bdi dir="auto" className={`${mono ? "mono " : ""}${most === undefined ? "wrap" : ""}`} title={shown === whole ? undefined : cut(whole, 2000)}>
      {shown}
    </bdi>
  );
}
