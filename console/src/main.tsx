import "@fontsource-variable/inter/wght.css";
import "@/style/base.css";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { whenLoggedOut } from "@/api/client";
import { Problem } from "@/api/problem";
import { SESSION_KEY } from "@/api/session";
import { router } from "@/app/router";
import { applyTheme } from "@/app/theme";
import { AskProvider } from "@/parts/Ask";
import { ToastProvider } from "@/parts/Toasts";

applyTheme();

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 2000,
      // What the server refuses it will refuse again; what it could not answer may work a moment later.
      retry: (failures, error) => failures < 2 && error instanceof Problem && (error.status === 0 || error.status >= 500),
      refetchOnWindowFocus: false,
    },
  },
});
whenLoggedOut(() => void queries.invalidateQueries({ queryKey: SESSION_KEY }));

const root = document.getElementById("root");
if (root)
  createRoot(root).render(
    <StrictMode>
      <QueryClientProvider client={queries}>
        <ToastProvider>
          <AskProvider>
            <RouterProvider router={router} />
          </AskProvider>
        </ToastProvider>
      </QueryClientProvider>
    </StrictMode>,
  );
