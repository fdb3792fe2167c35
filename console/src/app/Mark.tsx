/** The sign: a holdfast, which is how kelp stays where it is. */
export function Mark({ size = 22 }: { size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 32 32" aria-hidden="true" className="mark">
      <rect width="32" height="32" rx="7" fill="#3f46c8" />
      <g fill="none" stroke="#fff" strokeWidth="2.6" strokeLinecap="round" strokeLinejoin="round">
        <path d="M16 5v13M16 18c0 4-4 4-4 9M16 18c0 4 4 4 4 9M16 14c-5 1-9 4-9 10M16 14c5 1 9 4 9 10M11 8h10" />
      </g>
    </svg>
  );
}
