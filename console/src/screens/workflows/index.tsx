import "@/screens/workflows/workflows.css";
import type { Routes } from "@/app/screens";
import { List } from "@/screens/workflows/List";
import { One } from "@/screens/workflows/One";

export const routes: Routes = { "/": List, "/$id": One };
