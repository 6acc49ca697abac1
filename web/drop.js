/* drop: files onto the page, or through the button; dropped.js, fetched when one comes, reads
 * it. */
import {$, show} from './dom.js';
import {use} from './later.js';

const take = (file) => use('dropped', 'What reads files', (m) => m.take(file));

const hasFiles = (e) => [...(e.dataTransfer?.types || [])].includes('Files');

export function start() {
    let depth = 0; /* enter and leave come for every element on the way */
    const veil = (n) => {
        depth = n;
        show($('drop-veil'), depth > 0);
    };
    addEventListener('dragenter', (e) => hasFiles(e) && veil(depth + 1));
    addEventListener('dragleave', (e) => hasFiles(e) && veil(Math.max(0, depth - 1)));
    addEventListener('dragover', (e) => hasFiles(e) && e.preventDefault());
    addEventListener('drop', (e) => {
        veil(0);
        const file = e.dataTransfer?.files?.[0];
        if (!file)
            return;
        e.preventDefault();
        take(file);
    });
    $('btn-open-file').addEventListener('click', () => $('file-input').click());
    $('file-input').addEventListener('change', (e) => {
        const file = e.target.files[0];
        e.target.value = ''; /* the same file again is a change again */
        if (file)
            take(file);
    });
}
