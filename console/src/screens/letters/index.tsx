import "@/screens/letters/letters.css";
import type { Routes } from "@/app/screens";
import { Letters } from "@/screens/letters/Letters";
import { One } from "@/screens/letters/One";

export const routes: Routes = { "/": Letters, "/$id": One };
