import type { Routes } from "@/app/screens";
import { List } from "@/screens/breakers/List";
import { One } from "@/screens/breakers/One";

export const routes: Routes = { "/": List, "/$id": One };
