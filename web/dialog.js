/* dialog: modal dialogs, all of them <dialog> elements of the page: Escape closes, focus goes
 * back. */
import {$} from './dom.js';

export function open(id) {
    const d = $(id);
    if (!d.open)
        d.showModal();
}

export const close = (id) => $(id).close();

/* A click beside a dialog closes it, as Escape does. */
export function start() {
    for (const d of document.querySelectorAll('dialog'))
        d.addEventListener('pointerdown', (e) => {
            const r = d.getBoundingClientRect();
            const beside = e.clientX < r.left || e.clientX > r.right || e.clientY < r.top ||
                e.clientY > r.bottom;
            if (e.target === d && beside)
                d.close();
        });
}

/* Resolves to true when the user says yes. */
export function confirm(text, yes, no = 'Cancel') {
    $('confirm-text').textContent = text;
    $('btn-confirm-ok').textContent = yes;
    $('btn-confirm-cancel').textContent = no;
    const d = $('dlg-confirm');
    d.showModal();
    $('btn-confirm-cancel').focus();
    return new Promise((resolve) => {
        const done = (answer) => {
            $('btn-confirm-ok').onclick = $('btn-confirm-cancel').onclick = d.onclose = null;
            if (d.open)
                d.close();
            resolve(answer);
        };
        $('btn-confirm-ok').onclick = () => done(true);
        $('btn-confirm-cancel').onclick = () => done(false);
        d.onclose = () => done(false);
    });
}
