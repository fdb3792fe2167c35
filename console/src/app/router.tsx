import { createRootRoute, createRoute, createRouter, redirect } from "@tanstack/react-router";
import { type FunctionComponent, lazy, Suspense } from "react";
import { BASE } from "@/api/base";
import { Crash, NotFound } from "@/app/Lost";
import { SCREENS, type Screen } from "@/app/screens";
import { Shell } from "@/app/Shell";
import { parseSearch, stringifySearch } from "@/app/url";
import { Skeleton } from "@/parts/Skeleton";

const root = createRootRoute({ component: Shell, notFoundComponent: NotFound });

const home = createRoute({
  getParentRoute: () => root,
  path: "/",
  beforeLoad: () => {
    throw redirect({ to: "/overview", replace: true });
  },
});

const screens = SCREENS.flatMap((screen) =>
  screen.paths.map((path) =>
    createRoute({
      getParentRoute: () => root,
      path: `/${screen.name}${path === "/" ? "" : path}`,
      component: shown(screen, path),
      errorComponent: Crash,
    }),
  ),
);

export const router = createRouter({
  routeTree: root.addChildren([home, ...screens]),
  basepath: BASE,
  parseSearch,
  stringifySearch,
  scrollRestoration: true,
  defaultErrorComponent: Crash,
});

/** A screen's component for one path: its code comes when somebody goes there. */
function shown(screen: Screen, path: string): FunctionComponent {
  const Part = lazy(async () => {
    const { routes } = await screen.load();
    const component = routes[path];
    if (!component) throw new Error(`screens/${screen.name} exports no route for ${path}`);
    return { default: component };
  });
  return () => (
    <Suspense fallback={<Skeleton lines={8} />}>
      <Part />
    </Suspense>
  );
}
