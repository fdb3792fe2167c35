/** Where the console is mounted: "/" or "/ops/holdfast/", always with a slash at its end. */
export const BASE: string = mounted();

/** The path below the mount, as an address for fetch, EventSource and links. */
export function address(path: string): string {
  return BASE + path.replace(/^\/+/, "");
}

function mounted(): string {
  const told = document.querySelector<HTMLMetaElement>('meta[name="holdfast-base"]')?.content ?? "/";
  return told.endsWith("/") ? told : `${told}/`;
}
