/* blocktip: which block is under the pointer, or chosen with the arrow keys, in a bar or a strip.
 * Blocks stand side by side, each as wide as its bytes. To a screen reader such a drawing is a
 * slider that changes nothing: its value is a place in the order, and its text the block that is
 * there. */
import {$, put, show} from './dom.js';
import {bytes} from './format.js';

function describe(b) {
    const where = b.device === null ? `not loaded, planned on ${b.planned}` :
        b.device === b.planned ? `on ${b.device}` :
                                 `on ${b.device}, planned on ${b.planned}`;
    return `${b.name} · ${bytes(b.bytes)} · ${where}`;
}

function blockAt(blocks, share) {
    let left = share * blocks.reduce((n, b) => n + b.bytes, 0);
    for (const [i, b] of blocks.entries()) {
        left -= b.bytes;
        if (left <= 0)
            return i;
    }
    return blocks.length - 1;
}

function middleOf(blocks, i) {
    const all = blocks.reduce((n, b) => n + b.bytes, 0) || 1;
    const before = blocks.slice(0, i).reduce((n, b) => n + b.bytes, 0);
    return (before + blocks[i].bytes / 2) / all;
}

function place(node, share) {
    const tip = $('block-tip');
    const r = node.getBoundingClientRect();
    const half = tip.offsetWidth / 2;
    const x = Math.min(Math.max(r.left + share * r.width, half + 8), innerWidth - half - 8);
    tip.style.left = `${x}px`;
    const above = r.top - tip.offsetHeight - 8;
    tip.style.top = `${above > 8 ? above : r.bottom + 8}px`;
}

function tell(node, text, share) {
    const tip = $('block-tip');
    tip.textContent = text;
    show(tip, true);
    place(node, share);
}

const hide = () => show($('block-tip'), false);

/* What arrow keys do here: step through blocks, or nothing. */
export function mark(node, blocks) {
    const some = blocks.length > 0;
    put(node, {
        role: some ? 'slider' : 'img',
        'aria-readonly': some ? 'true' : null,
        'aria-valuemin': some ? 1 : null,
        'aria-valuemax': some ? blocks.length : null,
        'aria-valuenow': some ? Math.min(node.getAttribute('aria-valuenow') || 1, blocks.length) :
                                null,
    });
}

/* blocksOf(): the blocks in order, as they are now. intro(): what stands before, or alone when
 * there are none. box(): the element they are drawn in, where that is only a part of the node. */
export function attach(node, blocksOf, intro, box = () => node) {
    let chosen = 0;
    const say = (i) => {
        const blocks = blocksOf();
        if (!blocks.length) {
            tell(box(), intro(), 0.5);
            return;
        }
        chosen = Math.min(Math.max(i, 0), blocks.length - 1);
        const text = describe(blocks[chosen]);
        put(node, {'aria-valuenow': chosen + 1, 'aria-valuetext': text});
        tell(box(), `${intro()} · ${chosen + 1} of ${blocks.length}: ${text}`,
            middleOf(blocks, chosen));
    };
    node.addEventListener('pointermove', (e) => {
        const r = box().getBoundingClientRect();
        say(blockAt(blocksOf(), (e.clientX - r.left) / (r.width || 1)));
    });
    node.addEventListener('pointerleave', hide);
    node.addEventListener('focus', () => say(chosen));
    node.addEventListener('blur', hide);
    node.addEventListener('keydown', (e) => {
        const step = {ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10}[e.key];
        if (step)
            say(chosen + step);
        else if (e.key === 'Home' || e.key === 'End')
            say(e.key === 'Home' ? 0 : Infinity);
        else if (e.key === 'Escape')
            hide();
        else
            return;
        e.preventDefault();
    });
}
