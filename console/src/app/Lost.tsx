import { useRouter } from "@tanstack/react-router";
import { Go } from "@/app/Go";
import { Empty, Failure } from "@/parts/States";

/** Nothing is at this address. */
export function NotFound() {
  return (
    <Empty title="There is no such screen" icon="search" action={<Go to="/overview" className="button">Go to the overview</Go>}>
      The address leads nowhere. It may be from another version of the console.
    </Empty>
  );
}

/** A screen's own code failed, or could not be fetched after an upgrade of the server. */
export function Crash({ error }: { error: unknown }) {
  const router = useRouter();
  const isOld = error instanceof Error && /dynamically imported module|Importing a module/.test(error.message);
  if (isOld)
    return (
      <Empty title="The console has been updated" icon="refresh" action={<button type="button" className="button primary" onClick={() => window.location.reload()}>Load it again</button>}>
        This page is from the version before, and a part of it is gone.
      </Empty>
    );
  return <Failure error={error} retry={() => void router.invalidate()} />;
}
