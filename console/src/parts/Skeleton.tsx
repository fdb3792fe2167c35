import "@/parts/states.css";

/** Something is on its way. It keeps the room, so that nothing jumps. */
export function Skeleton({ lines = 3 }: { lines?: number }) {
  return (
    <div className="skeleton" role="status" aria-label="Loading">
      {Array.from({ length: lines }, (_, at) => (
        <span key={at} className="skeleton-line" style={{ width: `${92 - ((at * 17) % 45)}%` }} />
      ))}
    </div>
  );
}
