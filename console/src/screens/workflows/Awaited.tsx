import { Time } from "@/parts/Time";
import type { StageRow } from "@/screens/workflows/states";

/** What is waited for that long at most. */
const ENDS: ReadonlySet<string> = new Set(["signal", "workflow", "time"]);

/** What a stage waits for, and until when. */
export function Awaited({ waits }: { waits: NonNullable<StageRow["waits"]> }) {
  if (!waits.due_at) return waits.words;
  return (
    <>
      {waits.words}, <Time at={waits.due_at} left={ENDS.has(waits.kind)} />
    </>
  );
}
