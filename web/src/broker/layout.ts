// SPDX-License-Identifier: Apache-2.0 OR MIT
// Places of a network's routers and end nodes: routers on an ellipse, in an order that keeps links
// short, each end node outside of its router. The same network always looks the same.

export interface Point {
  x: number;
  y: number;
}

export interface Edge {
  from: string;
  to: string;
}

/** The picture's size, in its own units. On the narrowest screens a unit is a pixel. */
export const WIDTH = 340;
export const HEIGHT = 300;

const CENTRE: Point = { x: WIDTH / 2, y: HEIGHT / 2 };
const RADIUS: Point = { x: 106, y: 96 };
/** The distance of an end node from its router. */
const OUTSIDE = 42;
/** The angle between end nodes of one router, as the router sees them. */
const SPREAD = 0.75;
/** With more routers than this, the given order stays: to improve it would take too long. */
const ORDERED_MOST = 60;

const angle = (index: number, count: number): number =>
  (2 * Math.PI * index) / count - (count === 2 ? Math.PI : (3 * Math.PI) / 4);

function place(index: number, count: number): Point {
  if (count === 1) return CENTRE;
  const at = angle(index, count);
  return { x: CENTRE.x + RADIUS.x * Math.cos(at), y: CENTRE.y + RADIUS.y * Math.sin(at) };
}

/** Places routers, by name. */
export function routers(names: readonly string[], edges: readonly Edge[]): Map<string, Point> {
  const order = names.length > ORDERED_MOST ? [...names] : ordered(names, edges);
  return new Map(order.map((name, index) => [name, place(index, order.length)]));
}

/** Swaps pairs of routers as long as that makes the links shorter. */
function ordered(names: readonly string[], edges: readonly Edge[]): string[] {
  const order = [...names];
  const spots = order.map((_, index) => place(index, order.length));
  const length = (): number => {
    const at = new Map(order.map((name, index) => [name, spots[index] ?? CENTRE]));
    return edges.reduce((sum, { from, to }) => {
      const [a, b] = [at.get(from), at.get(to)];
      return a && b ? sum + Math.hypot(a.x - b.x, a.y - b.y) : sum;
    }, 0);
  };
  const swap = (one: number, other: number): void => {
    [order[one], order[other]] = [order[other] ?? "", order[one] ?? ""];
  };
  let best = length();
  for (let better = true; better; ) {
    better = false;
    for (let one = 0; one < order.length; one += 1) {
      for (let other = one + 1; other < order.length; other += 1) {
        swap(one, other);
        const now = length();
        if (now < best - 1e-6) {
          best = now;
          better = true;
        } else swap(one, other);
      }
    }
  }
  return order;
}

/** Places the end nodes of one router: outwards, side by side. */
export function outside(router: Point, count: number): Point[] {
  const away = Math.atan2(router.y - CENTRE.y, router.x - CENTRE.x);
  return Array.from({ length: count }, (_, index) => {
    const at = away + SPREAD * (index - (count - 1) / 2);
    return { x: router.x + OUTSIDE * Math.cos(at), y: router.y + OUTSIDE * Math.sin(at) };
  });
}

/** The line of one direction, beside that of the other: packets keep to the right. */
export function lane(from: Point, to: Point, aside: number): [Point, Point] {
  const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
  const [x, y] = [(to.x - from.x) / length, (to.y - from.y) / length];
  const shift = (point: Point, along: number): Point => ({
    x: point.x + along * x - aside * y,
    y: point.y + along * y + aside * x,
  });
  return [shift(from, ROUTER), shift(to, -ROUTER)];
}

/** The point that far along a line, from 0 to 1. */
export const along = ([from, to]: readonly [Point, Point], share: number): Point => {
  const part = Math.min(1, Math.max(0, share));
  return { x: from.x + (to.x - from.x) * part, y: from.y + (to.y - from.y) * part };
};

/** The radius of a router's mark. */
export const ROUTER = 15;
