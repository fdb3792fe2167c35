import { useEffect, useState } from "react";
import { Button } from "@/parts/Button";

/** Puts a text on the clipboard, and says so. */
export function Copy({ text, label = "Copy" }: { text: string; label?: string }) {
  const [done, setDone] = useState(false);
  useEffect(() => {
    if (!done) return;
    const timer = window.setTimeout(() => setDone(false), 1500);
    return () => window.clearTimeout(timer);
  }, [done]);
  return (
    <Button
      look="plain"
      small
      icon={done ? "check" : "copy"}
      aria-label={done ? "Copied" : label}
      title={done ? "Copied" : label}
      onClick={() => void navigator.clipboard?.writeText(text).then(() => setDone(true))}
    />
  );
}
